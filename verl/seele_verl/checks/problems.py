"""Do the problems fit the settings? Checked before any token is counted."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from omegaconf import DictConfig

from seele.config import SeeleConfig
from seele.curriculum import check_curriculum, columns_needed
from seele.data.overlong import Problem
from seele.data.storage.files import as_paths
from seele.data.storage.schema import read_columns, read_problem_files
from seele.errors import ConfigError, DataError
from seele.methods import METHODS
from seele.methods.sources import build_source
from seele.records import Instance
from seele.reward.milestones import milestones_of
from seele.reward.reasoning import check_reference


def read_problems(files: Any, key: str, max_samples: int) -> list[tuple[Instance, Path]]:
    """Return a run's problems, at most ``max_samples`` (-1 for all), and the file of each."""
    try:
        problems = read_problem_files(files, max_samples)
        for instance, path in problems:
            _check_answer(instance, path)
    except DataError as error:
        raise DataError(f"data.{key}: {error}") from error
    if not problems:
        raise DataError(f"data.{key}: no problems in {files}")
    counts = Counter(instance.instance_id for instance, _ in problems)
    instance_id, count = counts.most_common(1)[0]
    if count > 1:
        raise DataError(
            f"data.{key}: instance id {instance_id!r} occurs in {count} files; ids must be unique in a run"
        )
    return problems


def check_default_validation(config: DictConfig, overrides: Sequence[str]) -> None:
    """Raise ``DataError`` if own training problems would be validated on a default that is missing."""
    given = {override.lstrip("+").partition("=")[0] for override in overrides}
    if "data.train_files" not in given or "data.val_files" in given:
        return
    if missing := [path for path in as_paths(config.data.val_files) if not path.is_file()]:
        raise DataError(
            f"data.val_files: has its default, and {missing[0]} does not exist; give your own with "
            "data.val_files=[FILE]; `seele data prepare ... --set heldout_share=0.2` makes a held-out part"
        )


def check_splits(
    config: DictConfig,
    seele: SeeleConfig,
    training: Sequence[tuple[Instance, Path]],
    validation: Sequence[tuple[Instance, Path]],
) -> None:
    """Raise an error where the accuracies of different validation problems would have the same name."""
    train_files, val_files = (
        [path.resolve() for path in as_paths(config.data[key])] for key in ("train_files", "val_files")
    )
    validates_training = seele.data.validated_training_problems > 0
    if validates_training and train_files == val_files:
        raise ConfigError(
            "seele.data.validated_training_problems: data.val_files are the training files, which are "
            "validated whole; set it to 0"
        )
    files: dict[str, Path] = {}
    for instance, path in validation:
        name = f"{instance.data_source}/{path.stem}"
        if files.setdefault(name, path) != path:
            raise DataError(
                f"data.val_files: {files[name]} and {path} are both reported as {name!r}, from data set and "
                "file name; rename one of the files"
            )
    for instance, path in training if validates_training else ():
        name = f"{instance.data_source}/{path.stem}"
        if name in files:
            raise DataError(
                f"seele.data.validated_training_problems: problems of {path} and the validation file "
                f"{files[name]} would both be reported as {name!r}, from data set and file name; rename one "
                "of the files, or set it to 0"
            )


def check_solutions(seele: SeeleConfig, training: Sequence[Instance]) -> None:
    """Raise ``DataError`` if a part reads worked solutions or tiers of hints, and no problem has one."""
    if seele.hints.kind == "tiers" and not any(instance.tiers for instance in training):
        raise DataError(
            f"data.train_files: none of the {len(training)} problems has tiers, which seele.hints.kind=tiers "
            "gives as hints; `seele data hints` writes that column (docs/annotation.md)"
        )
    readers = {
        "seele.interleave": seele.interleave.problems,
        "the teacher of seele.credit.name=self_distillation": seele.credit.by_distillation,
        f"seele.off_policy.source={seele.off_policy.source}": build_source(seele.off_policy).reads_solutions,
    }
    for reader in (name for name, is_used in readers.items() if is_used):
        if not any(instance.steps for instance in training):
            raise DataError(
                f"data.train_files: none of the {len(training)} problems has a worked solution, which "
                f"{reader} needs; prepare problems with solutions (docs/data.md has their sources), or "
                "train without solutions: method=grpo"
            )


def check_hints(seele: SeeleConfig, training: Sequence[Problem]) -> None:
    """Raise ``DataError`` if the run gives hints and no problem can be hinted, unless later visits have the
    policy's own solutions.
    """
    if not seele.hints.gives_hints or seele.hints.refresh == "epoch":
        return
    if any(problem.may_be_hinted for problem in training):
        return
    without = sum(not (problem.instance.steps or problem.instance.tiers) for problem in training)
    unfit = len(training) - without
    why = [f"{without} have no worked solution"] if without else []
    why += [f"{unfit} have one of a single step, or no hint that is allowed and fits"] if unfit else []
    raise DataError(
        f"data.train_files: none of the {len(training)} problems can be hinted, but "
        f"seele.hints.controller={seele.hints.controller} gives hints: {' and '.join(why)}; prepare problems "
        "with solutions of two steps or more (docs/data.md), or train without hints: method=grpo"
    )


def check_milestones(training: Sequence[Instance]) -> None:
    """Raise ``DataError`` if no problem has the milestones that credit or hints use."""
    if not any(len(milestones_of(instance)) > 1 for instance in training):
        raise DataError(
            f"data.train_files: none of the {len(training)} problems has a milestone before its answer, but "
            "seele.credit or seele.hints.controller uses them; a step has one where a new value stands after "
            "'=' (docs/milestones.md); write the column 'milestones' yourself, or train with method=drgrpo"
        )


def check_columns_of_curriculum(files: Any, seele: SeeleConfig, *, num_problems: int) -> None:
    """Raise an error if the curriculum cannot be built from the columns, or cannot draw ``num_problems``."""
    names = columns_needed(seele.curriculum)
    rows = [row for path in as_paths(files) for row in read_columns(path, names)] if names else []
    num_problems = min(num_problems, len(rows))
    check_curriculum(seele.curriculum, rows, seed=seele.seed, num_problems=num_problems)


def check_columns_of_method(files: Any, seele: SeeleConfig) -> None:
    """Refuse, or warn of, training files without a column that makes the method what it is."""
    method = METHODS[seele.method]
    page = f"docs/methods/{method.name}.md has the command that writes it"
    if method.needs_column and not _has_values(files, method.needs_column):
        raise DataError(
            f"data.train_files: no problem has a value above 0 in column {method.needs_column!r}, which "
            f"method {method.name} needs; {page}"
        )
    own = seele.hints.refresh == "epoch"
    if method.expects_column and not own and not _has_values(files, method.expects_column):
        sys.stderr.write(
            f"warning: data.train_files: no problem has a value above 0 in column {method.expects_column!r}, "
            f"so method {method.name} takes the worked solutions for the model's own; {page}, or set "
            "seele.hints.refresh=epoch\n"
        )


def _check_answer(instance: Instance, path: Path) -> None:
    try:
        check_reference(instance)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _has_values(files: Any, column: str) -> bool:
    """True if a problem of the files has a value in the column that is neither 0 nor missing."""
    paths = [path for path in as_paths(files) if column in pq.read_schema(path).names]
    return any(any(pq.read_table(path, columns=[column])[column].to_pylist()) for path in paths)
