"""From the command line to a checked plan: tasks, samples, engine, conditions."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from seele.config.build import from_mapping
from seele.config.settings import RewardConfig
from seele.data.storage.files import check_writable, file_sha256, settings_files
from seele.errors import ConfigError
from seele.plugins import absolute, files_of
from seele.records import Chat
from seele.report.run_folder import MERGED
from seele.reward.function import load_function
from seele.reward.graders import GRADERS
from seele.rollout.sampling import rollout_seed
from seele.rollout.templates import CHAT, NO_CHAT, absolute_template, check_template, template_text
from seele_eval.arguments import GRADERS_AT_ONCE, MAX_TOKENS, Arguments, check_chat, check_greedy, merge_chat
from seele_eval.benchmarks import BENCHMARKS, GROUPS
from seele_eval.conditions import (
    RunDefaults,
    describe_chat,
    installed_versions,
    merged_checkpoint,
    read_run_defaults,
)
from seele_eval.generation import (
    EngineSettings,
    Stamps,
    find_model,
    find_weights,
    stamp,
)
from seele_eval.grading import (
    BOX,
    BOX_OR_LAST,
    IN_BOXES,
    JUDGES,
    MAX_TEXT_CHARS,
    READ_TEXTS,
    WHOLE_TEXT,
    Reading,
)
from seele_eval.own_benchmarks import find_benchmarks
from seele_eval.parallel import completion
from seele_eval.predictions import Key
from seele_eval.problems import MAX_VALUES, Problem
from seele_eval.prompts import Complete, Request, begins_thinking, stop_of
from seele_eval.server import Server, complete_on_server
from seele_eval.sources import Task, load_benchmark, load_problem_file

DEFAULT_TEMPLATE = "r1_zero"
"""The paper's template (arXiv:2509.06923, section 5.1)."""

_GRADER_LIMITS = ("time_limit_s", "memory_limit_mb", "max_answer_chars")
"""Settings in ``seele.reward`` of what a grader may use."""

_OF_FUNCTION = ("kwargs", "correct_from", "isolation", "time_limit_s", "memory_limit_mb")
"""Settings in ``seele.reward`` that decide the verdict of a user's own reward function."""

_FROM_VALIDATION = {
    "after_thinking": "only the text after </think> counts",
    "truncated_is_wrong": "a response that hits the length limit is wrong",
}
"""Settings in ``seele.reward`` of what counts of a response, which have options of the same names."""

OF_ENGINE = ("revision", "data_parallel", "tensor_parallel", "gpu_memory_share", "dtype")
"""Arguments that a server ignores."""
OF_SERVER = ("concurrency",)
"""Arguments that only a server needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One sample to generate and grade."""

    task: Task
    problem: Problem
    sample: int
    request: Request
    reading: Reading = IN_BOXES

    @property
    def key(self) -> Key:
        """Key of the sample."""
        return (self.task.name, self.request.temperature, self.problem.instance_id, self.sample)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A checked evaluation."""

    name: str
    """The model's name in tables."""
    out: Path
    tasks: tuple[Task, ...]
    draws: tuple[Draw, ...]
    settings: EngineSettings
    conditions: Mapping[str, Any]
    """Conditions that all samples share."""
    template: str
    chat: Chat
    """Further inputs of the template ``chat``."""
    reward: RewardConfig
    """The grader and its limits."""
    stamps: Stamps
    """Stamps of the model's files from before they were hashed; empty for a server."""


class ModelFiles(NamedTuple):
    """Files that decide what a model answers."""

    weights: list[Path]
    settings: list[Path]


def make_plan(arguments: Arguments) -> Plan:
    """Find and check everything except what only the engine knows.

    Raises:
        SeeleError: For anything that the user can fix.
    """
    defaults = read_run_defaults(arguments.run) if arguments.run else None
    model, out = _choose_model(arguments), _choose_out(arguments)
    _check_where(arguments, model)
    if arguments.run and Path(model).resolve() == (arguments.run / MERGED).resolve():
        sys.stderr.write(merged_checkpoint(arguments.run))
    template = arguments.template or (defaults.template if defaults else DEFAULT_TEMPLATE)
    check_template(template)
    settings = EngineSettings(
        max_tokens=arguments.max_tokens or (defaults.max_tokens if defaults else MAX_TOKENS),
        top_p=arguments.top_p,
        seed=arguments.seed,
        tensor_parallel=arguments.tensor_parallel,
        gpu_memory_share=arguments.gpu_memory_share,
        dtype=arguments.dtype,
    )
    is_runs = defaults and (
        absolute_template(template) == absolute_template(defaults.template)
        or _has_moved(template, defaults.template, defaults.inputs)
    )
    trained = defaults if is_runs else None
    stop = _choose_stop(arguments, defaults, trained, template)
    check_chat(template, arguments.chat)
    chat = merge_chat(trained.chat if trained else NO_CHAT, arguments.chat)
    is_validation = not (arguments.problems or arguments.benchmarks)
    validation = defaults.reward if defaults and is_validation else None
    reward = _choose_reward(arguments, defaults, validation or {})
    reading = _choose_reading(arguments, validation, template, chat, reward.grader)
    grader = _describe_grader(reward)
    if reading.answers == WHOLE_TEXT:
        reward = replace(reward, max_answer_chars=MAX_TEXT_CHARS)
    tasks = choose_tasks(arguments, defaults)  # may wait for the hub
    _check_judges(tasks, reward.grader)
    files = _find_files(model, arguments)
    stamps = stamp([*files.weights, *files.settings])
    return Plan(
        name=arguments.name or (_runs_own(arguments) or Path(model)).name,
        out=out,
        tasks=tuple(tasks),
        draws=tuple(plan_draws(tasks, arguments, template, stop, chat, reading)),
        settings=settings,
        conditions={
            **_describe_model(model, arguments, files),
            "hinted": False,
            "template": template,
            "template_text": None if template == CHAT else template_text(template),
            "stop": list(stop),
            # Other templates ignore it.
            "chat": describe_chat(chat if template == CHAT else Chat(ask="")),
            **{key: value for key, value in asdict(settings).items() if key != "gpu_memory_share"},
            **grader,
            "answers": reading.answers,
            "after_thinking": reading.after_thinking,
            "truncated_is_wrong": reading.truncated_is_wrong,
            "versions": installed_versions(),
        },
        template=template,
        chat=chat,
        reward=reward,
        stamps=stamps,
    )


def choose_engine(arguments: Arguments, plan: Plan) -> Complete:
    """Choose what completes the plan's requests: a server, this process, or one process per group of GPUs.

    Raises:
        SeeleError: If the model is missing, or there are too few GPUs.
    """
    model = _choose_model(arguments)
    if arguments.server:
        server = Server(url=arguments.server, model=model, concurrency=arguments.concurrency)
        return partial(complete_on_server, server, settings=plan.settings)
    folder = find_model(model, revision=arguments.revision)
    return completion(folder, plan.settings, copies=arguments.data_parallel)


def choose_tasks(arguments: Arguments, defaults: RunDefaults | None) -> list[Task]:
    """The named problem files and benchmarks, or else the run's validation files. Of these, one that is named
    like a benchmark or an average is called ``val_NAME``.
    """
    files = list(arguments.problems)
    if taken := [name for name, _ in files if name in BENCHMARKS or name in GROUPS]:
        raise ConfigError(f"--problems {taken[0]}=...: benchmarks or averages have this name; choose another")
    if defaults and not files and not arguments.benchmarks:
        files = [
            (f"val_{name}" if name in BENCHMARKS or name in GROUPS else name, path)
            for name, path in defaults.problem_files.items()
        ]
    benchmarks = find_benchmarks(arguments.benchmarks)
    names = [name for name, _ in files] + list(benchmarks)
    if not names:
        raise ConfigError("nothing to evaluate: name --benchmarks, --problems or --run")
    if len(set(names)) < len(names):
        raise ConfigError(f"benchmarks must have different names, got {names}")
    limit, by = arguments.limit, arguments.by
    tasks = [load_problem_file(name, path, limit=limit, by=by) for name, path in files] + [
        load_benchmark(
            name,
            benchmark,
            data_dir=arguments.data_dir,
            limit=limit,
            any_row_count=arguments.any_row_count,
            by=by,
        )
        for name, benchmark in benchmarks.items()
    ]
    _check_columns(tasks, by)
    return tasks


def _check_columns(tasks: Sequence[Task], by: Sequence[str]) -> None:
    if unknown := [name for name in by if not any(name in task.columns for task in tasks)]:
        there = "; ".join(f"{task.name} has {list(task.columns)}" for task in tasks)
        raise ConfigError(
            f"--by {unknown[0]}: no such column of at most {MAX_VALUES} different values; {there}"
        )


def plan_draws(
    tasks: Sequence[Task],
    arguments: Arguments,
    template: str,
    stop: tuple[str, ...] = (),
    chat: Chat = NO_CHAT,
    reading: Reading = IN_BOXES,
) -> list[Draw]:
    """Every sample to draw, by task and temperature; a seed depends on nothing but its sample.

    Raises:
        ConfigError: If ``--samples`` asks for several and all tasks are greedy.
    """
    if arguments.samples:
        hottest = max(max(arguments.temperature or (task.temperature,)) for task in tasks)
        check_greedy(hottest, arguments.samples)
    return [
        Draw(
            task=task,
            problem=problem,
            sample=sample,
            reading=reading,
            request=Request(
                question=problem.question,
                template=template,
                chat=chat,
                stop=stop,
                temperature=temperature,
                seed=rollout_seed(arguments.seed, 0, f"{task.name}/{problem.instance_id}", 0, sample),
            ),
        )
        for task in tasks
        for temperature in dict.fromkeys(arguments.temperature or (task.temperature,))
        for problem in task.problems
        for sample in range((arguments.samples or task.samples) if temperature > 0 else 1)
    ]


def _choose_model(arguments: Arguments) -> str:
    model = arguments.model or (arguments.run and not arguments.server and str(arguments.run / MERGED))
    if not model:
        raise ConfigError("name --model and --out, or --run for a run folder with its merged model")
    if not arguments.model and not Path(model).is_dir():
        raise ConfigError(f"{model}: no such folder; write it with: seele merge {arguments.run}")
    return model


def _check_where(arguments: Arguments, model: str) -> None:
    """Raise ``ConfigError`` for an option that the place of the model ignores."""
    ignored = OF_ENGINE if arguments.server else OF_SERVER
    unset = Arguments()
    for name in ignored:
        if (value := getattr(arguments, name)) != getattr(unset, name):
            where = "this machine's engine, not --server" if arguments.server else "--server"
            raise ConfigError(f"--{name.replace('_', '-')} {value}: concerns only {where}; omit it")
    if arguments.revision and Path(model).is_dir():
        raise ConfigError(
            f"--revision {arguments.revision}: concerns only a model on the hub, but {model} is a "
            "folder; omit it"
        )


def _has_moved(spec: str, runs: str, inputs: Mapping[str, Any]) -> bool:
    """Return True if ``spec`` names the run's own part ``runs`` at another path: under the same name, in a
    file whose contents are those that the run recorded in ``inputs``.
    """
    file, _, name = absolute(spec).rpartition(":")
    before, _, name_before = absolute(runs).rpartition(":")
    if name != name_before or not Path(file).is_file():
        return False
    return inputs.get(before) == file_sha256(Path(file))


def _choose_stop(
    arguments: Arguments, defaults: RunDefaults | None, trained: RunDefaults | None, template: str
) -> tuple[str, ...]:
    """The command's stop strings, else those of the run with this template, else the template's."""
    chosen = arguments.stop
    if chosen is None and trained:
        chosen = trained.stop
    folder = _chat_folder(arguments, template) if chosen is None else None
    stop = stop_of(template, chosen, folder)
    if arguments.stop is None and defaults and defaults.stop is not None and stop != defaults.stop:
        sys.stderr.write(
            f"warning: --template {template}: not the run's {defaults.template}, so the run's stop strings "
            f"{list(defaults.stop)} do not apply; to apply them, pass "
            + ("each with --stop TEXT\n" if defaults.stop else '--stop ""\n')
        )
    return stop


def _choose_reading(
    arguments: Arguments, validation: Mapping[str, Any] | None, template: str, chat: Chat, grader: str
) -> Reading:
    """Return where to look for answers: in a box, unless the command or ``chat`` says otherwise.

    The run's own validation files are read as in its validation, with this ``seele.reward``.
    """
    answers = arguments.answers or (BOX_OR_LAST if template == CHAT and validation is None else BOX)
    if answers == WHOLE_TEXT and grader not in READ_TEXTS:
        raise ConfigError(
            f"--answers {WHOLE_TEXT}: the grader must find the answer in the text, which only "
            f"{' and '.join(READ_TEXTS)} do, got {grader!r}; name one of them with --grader"
        )
    if template == CHAT and validation is not None and arguments.answers is None and grader in GRADERS:
        _say_as_in_validation(arguments, "answers stand in a box", f"--answers {BOX_OR_LAST}")
    counts: dict[str, bool] = {}
    for name, what in _FROM_VALIDATION.items():
        given = getattr(arguments, name)
        counts[name] = bool((validation or {}).get(name)) if given is None else given
        if counts[name] and given is None:
            _say_as_in_validation(arguments, what, f"--no-{name.replace('_', '-')}")
    begun = counts["after_thinking"] and begins_thinking(template, chat, _chat_folder(arguments, template))
    return Reading(answers=answers, begun=begun, **counts)


def _say_as_in_validation(arguments: Arguments, what: str, option: str) -> None:
    sys.stderr.write(f"{arguments.run}: as in its validation, {what}; {option} for another rule\n")


def _choose_reward(
    arguments: Arguments, defaults: RunDefaults | None, validation: Mapping[str, Any]
) -> RewardConfig:
    """Return the grader and its settings.

    The run's own validation files have the run's grader and its limits, unless the command names another one;
    the run's own reward function has the run's settings on any problems.
    """
    trained = defaults.reward if defaults else {}
    default = RewardConfig().grader
    grader = arguments.grader or validation.get("grader", default)
    if arguments.grader is None and grader != default:
        _say_as_in_validation(arguments, f"the grader is {grader}", f"--grader {default}")
    if grader in GRADERS:
        is_runs = validation.get("grader", default) == grader
        settings = {name: validation[name] for name in _GRADER_LIMITS if is_runs and name in validation}
    else:
        runs = trained.get("grader", default)
        inputs = defaults.inputs if defaults else {}
        is_runs = absolute(runs) == absolute(grader) or _has_moved(grader, runs, inputs)
        settings = dict(trained) if is_runs else {}
        if not is_runs and runs not in GRADERS:
            _warn_of_unused(grader, trained)
    read = from_mapping(RewardConfig, settings, f"{arguments.run}/resolved.yaml: seele.reward")
    at_once = arguments.graders or max(GRADERS_AT_ONCE, read.num_workers)
    return replace(read, grader=grader, num_workers=at_once)


def _warn_of_unused(grader: str, trained: Mapping[str, Any]) -> None:
    """Write a line if settings of the run's own reward function do not apply to another one."""
    defaults = asdict(RewardConfig())
    if unused := [name for name in _OF_FUNCTION if trained.get(name, defaults[name]) != defaults[name]]:
        sys.stderr.write(
            f"warning: --grader {grader}: neither the run's {trained['grader']} nor the same function in an "
            "unchanged copy of its file (SHA-256 in run_card.json), so these settings of the run's "
            f"seele.reward do not apply: {', '.join(unused)}; to apply them, name one of the two\n"
        )


def _check_judges(tasks: Sequence[Task], grader: str) -> None:
    own = [task.name for task in tasks if task.judge not in JUDGES]
    if own and grader not in GRADERS:
        raise ConfigError(
            f"--grader {grader}: benchmarks {own} have judges of their own; evaluate them with one of "
            f"{list(GRADERS)}, which leaves the verdict to them"
        )


def _chat_folder(arguments: Arguments, template: str) -> Path | None:
    """Folder of the tokenizer that renders a chat; None for other templates and for a server."""
    if template != CHAT or arguments.server:
        return None
    return find_model(_choose_model(arguments), revision=arguments.revision)


def _runs_own(arguments: Arguments) -> Path | None:
    """Return ``--run`` if the model is the run's own: its merged model or its export."""
    if not arguments.run or arguments.server:
        return None
    merged, exported = arguments.run / MERGED, arguments.run / "export"
    is_own = Path(arguments.model or merged).resolve() in (merged.resolve(), exported.resolve())
    return arguments.run if is_own else None


def _choose_out(arguments: Arguments) -> Path:
    out = arguments.out or (arguments.run and arguments.run / "eval")
    if arguments.run and not arguments.out and not _runs_own(arguments):
        raise ConfigError(
            f"--run {arguments.run} --model {arguments.model}: {out} is for the run's own model, "
            f"{arguments.run / 'merged'}; name --out for this one's evaluation"
        )
    if out is None:
        raise ConfigError("--out: name the folder to write; only --run has a default, RUN/eval")
    check_writable(out, is_folder=True)
    return out


def _describe_grader(reward: RewardConfig) -> dict[str, Any]:
    """The grader's name, the settings that decide the verdict and are not the defaults, and of a user's own
    reward function the checksums of its files.
    """
    described: dict[str, Any] = {"grader": reward.grader}
    is_own = reward.grader not in GRADERS
    if is_own:
        files = files_of(reward.grader, load_function(reward.grader, reward.kwargs))
        described["grader_sha256"] = [file_sha256(file) for file in files]
    settings, defaults = asdict(reward), asdict(RewardConfig())
    changed = {
        "grader_kwargs" if name == "kwargs" else name: settings[name]
        for name in (_OF_FUNCTION if is_own else _GRADER_LIMITS)
        if settings[name] != defaults[name]
    }
    return described | changed


def _find_files(model: str, arguments: Arguments) -> ModelFiles:
    """Return the files of the model; empty for a server."""
    if arguments.server:
        return ModelFiles([], [])
    folder = find_model(model, revision=arguments.revision)
    return ModelFiles(find_weights(folder), settings_files(folder))


def _describe_model(model: str, arguments: Arguments, files: ModelFiles) -> dict[str, Any]:
    """Facts that identify the model."""
    if arguments.server:
        return {"model": model, "server": arguments.server, "served_model": model}
    return {
        "model": model,
        "weights_sha256": {file.name: file_sha256(file) for file in files.weights},
        "files_sha256": {file.name: file_sha256(file) for file in files.settings},
    }
