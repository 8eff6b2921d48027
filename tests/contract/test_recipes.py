"""Recipes and benchmark jobs: they compose, pass all checks, and agree with the papers and pages."""

import copy
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import yaml
from omegaconf import DictConfig, OmegaConf

from helpers import runs
from helpers.scripts import WINDOWS, run_script, script_arguments
from seele.data.sources.settings import GENERATED, source_names
from seele.data.storage.files import commands_that_make
from seele.data.storage.schema import write_problems
from seele.errors import DataError
from seele.records import Instance
from seele_verl.checks.compositions import check_composition
from seele_verl.checks.preflight import check_run
from seele_verl.options import OWN_RECIPES, published_recipes
from seele_verl.runs.stages import stages
from seele_verl.settings import read_settings
from seele_verl.train import compose

# --- Every published experiment composes, agrees with its paper, and passes all checks before a start


Compose = Callable[..., DictConfig]
ROOT = Path(__file__).parents[2]
RECIPES = published_recipes()


def problem(index: int) -> Instance:
    return runs.problem(index, level=1 + index % 3)


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many problems as in the largest step, and for each window a model without weights."""
    folder = tmp_path_factory.mktemp("fixtures")
    write_problems(folder / "train.parquet", [problem(i) for i in range(1024)], split="train")
    write_problems(folder / "heldout.parquet", [problem(-1)], split="heldout")
    write_problems(folder / "first.parquet", [problem(i) for i in range(1024, 1100)], split="train")
    for window in {*WINDOWS.values()}:
        runs.save_model(folder / str(window), max_position_embeddings=window)
    return folder


@pytest.fixture
def eight_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node as the recipes require, without access to the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("seele_verl.memory.card_memory", lambda: 79.0 * 2**30)
    monkeypatch.setattr("seele_verl.memory.host_memory", lambda: 1024.0 * 2**30)
    monkeypatch.setattr("ray._private.utils.get_num_cpus", lambda: 64)


def on_fixtures(fixtures: Path, run: Path, config: DictConfig) -> DictConfig:
    """Return a recipe's configuration with tiny problems and a model of the same window. The problems are cut
    to one step's, because reading more would only take time.
    """
    config = copy.deepcopy(config)
    window = WINDOWS.get(config.actor_rollout_ref.model.path, 4096)
    config.actor_rollout_ref.model.path = str(fixtures / str(window))
    config.data.train_files = [str(fixtures / "train.parquet")]
    config.data.val_files = [str(fixtures / "heldout.parquet")]
    if config.seele.sft.train_files:
        config.seele.sft.train_files = [str(fixtures / "first.parquet")]
    # In two-stage recipes, half of them are left for the second stage.
    config.data.train_max_samples = min(1024, 3 * config.data.train_batch_size)
    config.trainer.default_local_dir = str(run)
    return config


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_passes_every_check(
    recipe: str, fixtures: Path, eight_gpus: None, tmp_path: Path, composed: Compose
) -> None:
    config = on_fixtures(fixtures, tmp_path / "run", composed(f"recipe={recipe}"))
    walk = stages(config, [f"recipe={recipe}"])
    _, checked = next(walk)
    walk.close()
    # With two stages, the first one comes first; both were checked.
    assert checked.seele.method == ("sft" if config.seele.method == "sft_rl" else config.seele.method)
    assert 0 < checked.num_problems <= config.data.train_max_samples


@pytest.mark.parametrize("method", ["seele", "grpo", "uft", "sft"])
@pytest.mark.parametrize("recipe", OWN_RECIPES)
def test_a_recipe_for_a_cpu_passes_every_check(
    recipe: str, method: str, fixtures: Path, tmp_path: Path, composed: Compose
) -> None:
    overrides = [f"recipe={recipe}", f"method={method}", "hardware=cpu", "seele.prompt.template=plain"]
    config = on_fixtures(fixtures, tmp_path / "run", composed(*overrides))
    assert check_run(config, overrides).num_problems == config.data.train_max_samples
    assert config.trainer.device == "cpu"


@pytest.mark.parametrize("recipe", ["seele_qwen2.5-7b", "luffy_sft_qwen2.5-math-7b"])
def test_a_recipes_script_trains_the_recipe(recipe: str) -> None:
    given = {"MODEL": "some/model", "TRAIN": "a.parquet,b.parquet", "VALID": "c.parquet", "OUT": "runs/x"}
    assert recipe_arguments(recipe) == [f"recipe={recipe}", "hardware=gpu8"]
    assert recipe_arguments(recipe, "seele.seed=3", **given) == [
        f"recipe={recipe}",
        "hardware=gpu8",
        "actor_rollout_ref.model.path='some/model'",
        "data.train_files=['a.parquet','b.parquet']",
        "data.val_files=['c.parquet']",
        "trainer.default_local_dir='runs/x'",
        "seele.seed=3",
    ]


@pytest.mark.parametrize("arguments", [(), ("",), ("base/sec",), ("seele.seed=1",)], ids=repr)
def test_an_unknown_recipe_is_named_with_those_that_are_known(arguments: tuple[str, ...]) -> None:
    result = run_script(ROOT / "scripts" / "train_recipe.sh", *arguments)
    assert result.returncode == 2 and not result.stdout
    assert f"unknown recipe '{''.join(arguments)}'" in result.stderr
    assert sorted(result.stderr.split("one of: ")[1].split()) == sorted([*RECIPES, *OWN_RECIPES])


def recipe_arguments(recipe: str, *arguments: str, **environment: str) -> list[str]:
    """Return the arguments that the script passes to the trainer, without those of every recipe."""
    words = script_arguments("train_recipe.sh", recipe, *arguments, **environment)
    assert words[:3] == [
        "trainer.max_restarts=3",
        "trainer.watchdog_minutes=60",
        "seele.save_every_minutes=30",
    ]
    return words[3:]


def test_files_may_come_as_lzes_launchers_take_them(composed: Compose) -> None:
    train = "https://huggingface.co/datasets/EleutherAI/hendrycks_math?split=train"
    valid = "hf://BytedTsinghua-SIA/DAPO-Math-17k?split=train"
    config = composed(
        *recipe_arguments(
            "lze_selection_qwen2.5-math-1.5b",
            MODEL_PATH="Qwen/Qwen2.5-Math-1.5B",
            TRAIN_FILES=f"['{train}']",
            VAL_FILES=f'["{train}", "{valid}"]',
        )
    )
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen2.5-Math-1.5B"
    assert (config.data.train_files, config.data.val_files) == ([train], [train, valid])


# Precedence


def sizes(config: DictConfig) -> tuple[int, int, int, int, int | None]:
    """Return rollouts per problem, problems per step and per update, tokens per response, and steps."""
    return (
        config.actor_rollout_ref.rollout.n,
        config.data.train_batch_size,
        config.actor_rollout_ref.actor.ppo_mini_batch_size,
        config.data.max_response_length,
        config.trainer.total_training_steps,
    )


@pytest.mark.parametrize("method", ["seele", "grpo", "drgrpo", "luffy", "uft", "prefix_rft", "sft_rl"])
def test_seeles_comparison_has_the_same_sizes_for_every_baseline(method: str, composed: Compose) -> None:
    config = composed(*recipe_arguments("seele_qwen2.5-3b", METHOD=method))
    assert (config.seele.method, config.actor_rollout_ref.model.path) == (method, "Qwen/Qwen2.5-3B")
    assert sizes(config) == (32, 256, 64, 2048, 400)
    assert read_settings(config).sft.batch_size == 64
    assert config.trainer.default_local_dir == f"runs/seele_qwen2.5-3b-{method}"


@pytest.mark.parametrize("recipe", ["seele_qwen2.5-3b", "luffy_sft_qwen2.5-math-7b", "sec_math_qwen2.5-3b"])
def test_supervised_training_keeps_its_own_sizes(recipe: str, composed: Compose) -> None:
    more = ["curriculum=uniform"] if recipe.startswith("sec") else []
    config = composed(f"recipe={recipe}", "method=sft", *more)
    sft = read_settings(config).sft
    assert (sft.batch_size, sft.learning_rate, sft.epochs) == (64, 5e-5, 3)
    assert config.trainer.total_training_steps is None


def test_a_recipe_stands_above_method_and_hardware_and_below_the_command_line(composed: Compose) -> None:
    recipe = "recipe=sec_countdown_qwen2.5-3b"
    assert composed("hardware=gpu8").data.max_prompt_length == 2048
    assert composed(recipe).data.max_prompt_length == 1024
    assert composed(recipe, "data.max_prompt_length=512").data.max_prompt_length == 512
    assert composed(recipe, "hardware=gpu1").data.train_batch_size == 256
    assert composed(recipe, "hardware=gpu1").trainer.n_gpus_per_node == 1
    other = composed(recipe, "method=drgrpo", "model=qwen2_5_7b", "data=zebra", "curriculum=uniform")
    assert (other.seele.method, other.seele.curriculum.name) == ("drgrpo", "uniform")
    assert other.actor_rollout_ref.model.path == "Qwen/Qwen2.5-7B"
    assert other.data.train_files == ["data/prepared/zebra/train.parquet"]


@pytest.mark.parametrize("hardware", ["cpu", "gpu_tiny"])
def test_a_tiny_job_stands_above_a_recipe(hardware: str, composed: Compose) -> None:
    tiny = composed(f"hardware={hardware}", "job=tiny")
    config = composed("recipe=luffy_qwen2.5-math-7b", f"hardware={hardware}", "job=tiny", "model=tiny")
    assert config.seele.method == "luffy"
    assert sizes(config) == sizes(tiny)
    assert config.data.max_prompt_length == tiny.data.max_prompt_length
    assert config.actor_rollout_ref.rollout.max_model_len == tiny.actor_rollout_ref.rollout.max_model_len


@pytest.mark.parametrize(
    "recipe", ["seele_qwen2.5-3b", "luffy_qwen2.5-math-7b", "sec_2d_qwen2.5-3b", "prefix_rft_qwen2.5-math-7b"]
)
def test_a_recipe_can_be_tried_out_without_a_gpu(
    recipe: str, fixtures: Path, tmp_path: Path, composed: Compose
) -> None:
    # As docs/papers.md says.
    small = ("hardware=cpu", "job=tiny", "model=tiny", "data=chains", "seele.prompt.template=plain")
    config = composed(f"recipe={recipe}", *small, "seele.reward.grader=mathruler")
    assert check_run(on_fixtures(fixtures, tmp_path / "run", config), small).num_problems == 48


# Data


def local_files(config: DictConfig) -> list[Path]:
    data = config.data
    return [Path(file) for file in (*data.train_files, *data.val_files) if "://" not in file]


@pytest.mark.parametrize(
    "recipe",
    [
        *("seele_qwen2.5-3b", "luffy_qwen2.5-math-7b", "sec_2d_qwen2.5-3b", "sec_math_qwen2.5-3b"),
        *("sec_countdown_qwen2.5-3b", "sec_zebra_qwen2.5-3b", "sec_arc_1d_qwen2.5-3b"),
    ],
)
def test_data_that_are_missing_are_named_with_the_commands_that_make_them(
    recipe: str,
    fixtures: Path,
    eight_gpus: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    composed: Compose,
) -> None:
    files = local_files(composed(f"recipe={recipe}"))
    monkeypatch.chdir(tmp_path)
    config = on_fixtures(fixtures, tmp_path / "run", composed(f"recipe={recipe}"))
    config.data.train_files = list(composed(f"recipe={recipe}").data.train_files)
    with pytest.raises(DataError) as error:
        check_run(config, [])
    assert str(files[0]) in str(error.value)
    for command in commands_that_make(files[0]):
        assert f"`{command}`" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_every_file_of_a_recipe_has_commands_that_name_a_source(composed: Compose) -> None:
    files = {file for recipe in RECIPES for file in local_files(composed(f"recipe={recipe}"))}
    assert len(files) >= 10
    for file in files:
        seele, data, prepare, source, *_ = commands_that_make(file)[0].split()
        assert (seele, data, prepare) == ("seele", "data", "prepare")
        assert source in (*source_names(), *GENERATED) or source.startswith("hf://")


def test_files_of_a_first_stage_that_are_missing_are_named_with_their_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composed: Compose
) -> None:
    monkeypatch.chdir(tmp_path)
    config = composed("recipe=luffy_sft_rl_qwen2.5-math-7b")
    with pytest.raises(DataError, match="seele data prepare hf://Elliott/Openr1-Math-48k-Complement --out"):
        next(stages(config, []))
    complement = Path(config.data.train_files[0])
    complement.parent.mkdir(parents=True)
    complement.touch()
    with pytest.raises(DataError, match=r"seele.sft.train_files: no such file: .* prepare openr1_46k"):
        next(stages(config, []))


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("mine/train.parquet", None),
        ("countdown/warm_start.parquet", None),
        ("countdown/harder.parquet", "seele data prepare countdown --out countdown"),
        ("dapo_17k/heldout.parquet", None),
        ("gsm8k/tuning.parquet", "seele data prepare gsm8k --out gsm8k --tuning SHARE"),
        ("gsm8k/harder.parquet", None),
    ],
)
def test_a_file_has_the_command_that_writes_it_or_none(file: str, command: str | None) -> None:
    assert commands_that_make(Path(file)) == (() if command is None else (command,))


def test_every_model_has_its_window_here(composed: Compose) -> None:
    models = {composed(f"recipe={recipe}").actor_rollout_ref.model.path for recipe in RECIPES}
    assert models == {*WINDOWS}


# --- docs/papers.md agrees with the recipes: each is described once, and every value in a column "ours", or
# under a key in a table of recipes, is the composed one


PAGE = (ROOT / "docs" / "papers.md").read_text()


def code(text: str) -> list[str]:
    """Return the pieces in code font."""
    return re.findall(r"`([^`]+)`", text)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> list[list[dict[str, str]]]:
    """Return the rows of each Markdown table, by column."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        header, _, *rows = block.splitlines()
        found.append([dict(zip(cells(header), cells(row), strict=True)) for row in rows])
    return found


SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, flags=re.MULTILINE))
RECIPES_OF = {
    paper: code(re.search(r"^Recipes: ((?:.+\n)+)", text, flags=re.MULTILINE)[1])
    for paper, text in SECTIONS.items()
}


def claims(paper: str) -> dict[str, dict[str, str]]:
    """Return the section's claims about each of its recipes: value by setting."""
    said = {recipe: {} for recipe in RECIPES_OF[paper]}
    for table in tables(SECTIONS[paper]):
        for row in table:
            if "ours" in row:
                (key,), (value,) = code(row["setting"]), code(row["ours"])
                rows = [(recipe, key, value) for recipe in said]
            else:
                keys = [name for name in row if code(name)]
                rows = [
                    (recipe, code(key)[0], code(row[key])[0])
                    for recipe in code(row.get("recipe", ""))
                    for key in keys
                ]
            for recipe, key, value in rows:
                assert key not in said[recipe], f"{recipe}: {key} occurs twice"
                said[recipe][key] = value
    return said


SAID = {recipe: values for paper in SECTIONS for recipe, values in claims(paper).items()}


def value_of(text: str) -> object:
    # YAML 1.1 reads 1e-6 as a text.
    return float(text) if re.fullmatch(r"\de-\d", text) else yaml.safe_load(text)


def test_every_recipe_is_described_once() -> None:
    assert sorted(recipe for recipes in RECIPES_OF.values() for recipe in recipes) == RECIPES
    assert all(len(values) >= 15 for values in SAID.values())


@pytest.mark.parametrize("recipe", RECIPES)
def test_ours_is_what_is_composed(recipe: str, composed: Callable[..., DictConfig]) -> None:
    said = {key: value_of(text) for key, text in SAID[recipe].items()}
    config = composed(f"recipe={recipe}")
    assert {key: OmegaConf.select(config, key, throw_on_missing=True) for key in said} == said


def test_every_script_that_the_page_names_is_there() -> None:
    named = {*re.findall(r"train_recipe\.sh ([\w.-]+)", PAGE), *re.findall(r"recipe=([\w.-]+)", PAGE)}
    assert named - {"NAME"} <= {*RECIPES}
    assert len(named) >= 10


def test_the_notice_names_every_paper_that_the_code_names() -> None:
    notice = (ROOT / "NOTICE").read_text()
    places = [ROOT / folder for folder in ("seele", "verl", "simpleRL-reason", "docs/methods")]
    files = [path for place in places for path in place.rglob("*") if path.suffix in (".py", ".yaml", ".md")]
    named = {paper for path in files for paper in re.findall(r"arXiv:(\d{4}\.\d{5})", path.read_text())}
    assert len(named) >= 20
    assert sorted(paper for paper in named if paper not in notice) == []


# --- Every job that a benchmark times can start: its settings compose and are not refused


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_job_composes_and_is_allowed(load_from):
    load = partial(load_from, BENCHMARKS)
    runs, reference = load("runs"), load("reference")
    jobs = {
        "rounds": load("rounds").JOB,
        **load("growth").SIZES,
        **{name: job for name, (program, job) in reference.VARIANTS.items() if program == runs.OURS},
    }
    assert len(jobs) >= 10
    for name, overrides in jobs.items():
        config = compose([*runs.JOB, *overrides])
        settings = read_settings(config)
        check_composition(config, settings)
        prompts, rollouts = config.data.train_batch_size, settings.hints.rollouts_per_prompt
        assert prompts % config.actor_rollout_ref.actor.ppo_mini_batch_size == 0, name
        assert rollouts % settings.hints.rounds == 0, name
