"""docs/methods agrees with the code: every pair in its tables composes or is refused as stated, every refusal
in code has a row, and every default that a method's page names is the composed one.
"""

import ast
import copy
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

import seele.config.settings
import seele.methods
import seele.methods.method
import seele.methods.sources.source
import seele_verl.checks.compositions
from seele.curriculum import CURRICULA, SELECTIONS
from seele.errors import ConfigError
from seele.hints import CONTROLLERS, configured_controller
from seele.methods import METHODS, check_method
from seele.methods.baselines import BASELINES
from seele.metrics import explain
from seele_verl.checks.compositions import check_composition
from seele_verl.checks.without_effect import _left_off, _left_off_of_verl
from seele_verl.settings import read_settings
from seele_verl.train import compose

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "methods"
README = (PAGES / "README.md").read_text()

# A part of a run -> its choices -> what they set. The first choice is the default of most methods.
CHOICES = {
    "hint controller": {name: [f"seele.hints.controller={name}"] for name in ("none", *sorted(CONTROLLERS))},
    "curriculum": {name: [f"seele.curriculum.name={name}"] for name in CURRICULA},
    "selection": {name: [f"seele.selection.name={name}"] for name in SELECTIONS},
    "pruning": {"no": [], "yes": ["seele.selection.prune_after=2"]},
    "spare problems": {"no": [], "yes": ["seele.curriculum.spare_problems=4"]},
    "group filter": {
        "no": [],
        "yes": ["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc"],
    },
    "overlong penalty": {"no": [], "yes": ["reward.reward_kwargs.overlong_buffer_cfg.enable=true"]},
    "advantage baseline": {name: [f"seele.advantage.baseline={name}"] for name in BASELINES},
    "credit": {"no": [], "yes": ["seele.credit.name=milestones"]},
}


def composed(method: str, *settings: str) -> DictConfig:
    """Return a method's configuration with single keys set."""
    return compose([f"method={method}", "model=qwen2_5_7b", "hardware=gpu8", *settings])


composed_once = cache(composed)


@contextmanager
def with_set(method: str, *settings: str) -> Iterator[DictConfig]:
    """Lend a method's configuration with keys set as Hydra sets them, and put back what they were: a tenth of
    the time of composing it. What is chosen from a group is composed.
    """
    groups = [each for each in settings if "." not in each.partition("=")[0]]
    values = OverridesParser.create().parse_overrides([each for each in settings if each not in groups])
    config, before = composed_once(method, *groups), []
    for value in values:
        section, _, name = value.key_or_group.rpartition(".")
        nodes = OmegaConf.select(config, section)._content
        before.append((nodes, name, copy.deepcopy(nodes[name])))
    try:
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        yield config
    finally:
        for nodes, name, node in reversed(before):
            nodes[name] = node


def check(method: str, *settings: str) -> None:
    """Run preflight's checks of a run's parts."""
    with with_set(method, *settings) as config:
        seele = read_settings(config)
        check_method(seele)
        check_composition(config, seele)
        configured_controller(seele.hints, seed=seele.seed, training_steps=seele.training_steps)


@cache
def refusal(method: str, *settings: str) -> ConfigError | None:
    try:
        check(method, *settings)
    except ConfigError as error:
        return error
    return None


def table(text: str, *header: str) -> list[dict[str, str]]:
    """Return the rows of the Markdown table whose header begins with these cells."""
    lines = text.splitlines()
    names, first = next(
        (cells(line), number) for number, line in enumerate(lines) if cells(line)[: len(header)] == [*header]
    )
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(names, cells(line), strict=True)))
    return rows


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []


def code(cell: str) -> list[str]:
    """Return the cell's pieces in code font."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("part", CHOICES)
def test_keys_are_set_here_as_in_a_composed_configuration(part):
    for settings in CHOICES[part].values():
        with with_set("seele", *settings) as config:
            assert config == composed("seele", *settings)
    assert composed_once("seele") == composed("seele"), "what was set has been put back"


# Methods and parts

METHOD_TABLE = table(README, "method", "hint controller")
REFUSALS = table((PAGES / "refused.md").read_text(), "choose", "the message")
MESSAGES = [code(row["the message"])[0] for row in REFUSALS]


def test_each_method_has_a_row_and_a_page():
    described = [code(row["method"])[0] for row in table(README, "method", "what it is")]
    assert set(METHODS) <= set(described) <= {*METHODS, "sft", "sft_rl"}
    composing = {code(row["method"])[0] for row in METHOD_TABLE}
    assert set(METHODS) - {"sft", "sft_rl"} <= composing
    assert all((PAGES / f"{method}.md").exists() for method in composing)


@pytest.mark.parametrize("row", METHOD_TABLE, ids=lambda row: code(row["method"])[0])
def test_a_method_takes_the_parts_that_the_table_says(row):
    (method,) = code(row["method"])
    for part, choices in CHOICES.items():
        cell = row[part]
        allowed = {*choices} if cell in ("all", "yes") else {"no"} if cell == "no" else {*code(cell)}
        for choice, settings in choices.items():
            error = refusal(method, *settings)
            if "has no hint in its first round" in str(error):
                error = refusal(method, *settings, "seele.hints.rounds=2")
            assert (error is None) == (choice in allowed), f"{part}={choice}: {error}"
            if error:
                assert is_listed(error, part), f"{part}={choice}: no row for {error}"


def is_listed(error: ConfigError, part: str) -> bool:
    """Return True if the table of refusals has a row with this message; controllers differ only in names."""
    if part == "hint controller":
        return re.match(r"seele.hints.controller: method \w+ .*; allowed are \[", str(error)) is not None
    words = {re.sub(r"=\w+$", "", message) for message in MESSAGES}
    return any(message in str(error) for message in words)


PART_TABLE = table(README, "part", "hint controller")


def test_the_table_of_parts_is_whole_and_symmetric():
    assert [row["part"] for row in PART_TABLE] == [*CHOICES]
    said = {(row["part"], other): row[other] for row in PART_TABLE for other in CHOICES}
    assert all(said[a, b] == said[b, a] and (said[a, b] == "") == (a == b) for a, b in said)


@pytest.mark.parametrize("row", PART_TABLE, ids=lambda row: row["part"])
def test_parts_compose_as_the_table_says(row):
    part = row["part"]
    for other in [*CHOICES][[*CHOICES].index(part) + 1 :]:
        for one, settings in [*CHOICES[part].items()][1:]:
            for two, further in [*CHOICES[other].items()][1:]:
                error = refusal("seele", *settings, *further)
                allowed = row[other] == "yes"
                assert (error is None) == allowed, f"{part}={one} with {other}={two}: {error}"


# Refusals


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: code(row["choose"])[0])
def test_what_the_table_refuses_is_refused_with_its_message(row):
    error = refuse(row)
    assert code(row["the message"])[0] in str(error)


def test_a_hint_in_the_users_turn_ends_no_thoughts():
    thoughts = ("seele.reward.after_thinking=true", "seele.imitation.coefficient=0")
    assert "or set seele.hints.placement=user" in str(refusal("seele", *thoughts))
    assert refusal("seele", *thoughts, "seele.hints.placement=user") is None


SUCCESSES = [
    f"seele.off_policy.{each}" for each in ("source=successes", "loss=likelihood", "statistics=on_policy")
]


NO_SUCCESSES = {
    "a critic, or nothing rolled out": {"ppo", "sft"},
    "off-policy rows of its own": {"luffy", "rl_sft_loss", "exgrpo", "prefix_rft", "trapo"},
    "more than one round": {"adhint", "ghpo", "bread", "sage", "scaf_grpo"},
    "advantages that the page names": {"prefix_rl", "opsd", "asymre"},
}


@pytest.mark.parametrize("method", METHODS)
def test_successes_are_replayed_under_the_methods_that_the_page_says(method):
    """In one round, with the settings of ``replay=successes``."""
    error = refusal(method, *SUCCESSES, "seele.hints.rounds=1")
    assert (error is not None) == any(method in names for names in NO_SUCCESSES.values()), error
    if method == "asymre":
        assert refusal(method, *SUCCESSES, "seele.advantage.shift=0") is None


VERLS_CORRECTION = ("rollout_is_threshold=3.0", "rollout_is_batch_normalize=true", "rollout_rs_threshold=2.0")


@pytest.mark.parametrize("setting", VERLS_CORRECTION)
def test_verls_own_correction_does_not_go_with_ours(setting):
    ours, verls = "seele.rollout_correction=tis", f"algorithm.rollout_correction.{setting}"
    assert "is for verl's own correction; leave that at" in str(refusal("seele", ours, verls))
    assert refusal("seele", ours) is None and refusal("seele", verls) is None


def refuse(row: dict[str, str]) -> ConfigError:
    method, *settings = code(row["choose"])[0].split()
    error = refusal(method.removeprefix("method="), *settings)
    assert error is not None
    return error


def places_that_refuse() -> set[tuple[str, int]]:
    """Return file and line of each check of one setting against another."""
    found = set()
    for module in (
        seele.methods,
        seele.methods.method,
        seele.methods.sources.source,
        seele_verl.checks.compositions,
    ):
        tree = ast.parse(inspect.getsource(module))
        found |= {(module.__file__, node.lineno) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    # In the settings, only the checks of one section against another.
    settings = seele.config.settings
    (whole,) = (
        node
        for node in ast.parse(inspect.getsource(settings)).body
        if isinstance(node, ast.ClassDef) and node.name == "SeeleConfig"
    )
    calls = (node for node in ast.walk(whole) if isinstance(node, ast.Call))
    return found | {
        (settings.__file__, call.lineno)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "require"
    }


def places_of(error: BaseException | None) -> set[tuple[str, int]]:
    """Return file and line of every call in the tracebacks of the error and its cause."""
    places = set()
    while error is not None:
        step = error.__traceback__
        while step is not None:
            places.add((step.tb_frame.f_code.co_filename, step.tb_lineno))
            step = step.tb_next
        error = error.__cause__
    return places


def test_every_refusal_in_code_has_a_row():
    reached = set().union(*(places_of(refuse(row)) for row in REFUSALS))
    missing = sorted(places_that_refuse() - reached)
    assert len(places_that_refuse()) >= 10
    assert missing == [], "add a row to docs/methods/refused.md"


# Pages

SETTINGS_PAGES = [page for page in sorted(PAGES.glob("*.md")) if page.stem in METHODS]


@pytest.mark.parametrize("page", SETTINGS_PAGES, ids=lambda page: page.stem)
def test_a_pages_defaults_are_the_composed_ones(page):
    if "| setting | default |" not in page.read_text():
        pytest.skip("the page has no table of settings")
    rows = table(page.read_text(), "setting", "default")
    config = composed(page.stem)
    said = {code(row["setting"])[0]: code(row["default"])[0] for row in rows}
    # YAML 1.1 reads 1e-6 as a text.
    values = {
        key: float(value) if re.fullmatch(r"1e-\d", value) else yaml.safe_load(value)
        for key, value in said.items()
    }
    assert {key: OmegaConf.select(config, key, throw_on_missing=True) for key in values} == values


@pytest.mark.parametrize("page", SETTINGS_PAGES, ids=lambda page: page.stem)
def test_metrics_that_a_page_names_are_documented(page):
    section = page.read_text().partition("## Metrics beyond the common ones")[2].partition("##")[0]
    for name in (word for word in code(section) if "/" in word):
        assert name.endswith("*") or explain(name), name


@pytest.mark.parametrize("page", SETTINGS_PAGES, ids=lambda page: page.stem)
def test_a_page_ends_with_the_methods_command(page):
    assert f"train_baseline.sh {page.stem}\n```" in page.read_text() or page.stem in ("sft", "sft_rl")


def test_every_setting_of_a_part_that_may_be_left_off_exists():
    config, absent = composed("grpo"), object()
    configs = [composed(method) for method in METHODS]
    keys = {key for each in configs for key, _ in (*_left_off(read_settings(each)), *_left_off_of_verl(each))}
    for key in keys:
        assert OmegaConf.select(config, key.rstrip("."), default=absent) is not absent, key
