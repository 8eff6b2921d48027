"""The command line of ``seele_eval.run`` as a frozen record. This module only parses; it opens no files."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from seele.config import RewardConfig
from seele.errors import ConfigError
from seele.records import BOX_REQUEST, Chat
from seele.reward.graders import GRADERS
from seele.rollout.templates import CHAT, NO_CHAT
from seele.rollout.unanswered import Advice, advise_template
from seele_eval.benchmarks import BENCHMARKS, GROUPS
from seele_eval.generation import EngineSettings
from seele_eval.grading import ANSWERS, BOX, BOX_OR_LAST

# The paper's response limit (arXiv:2509.06923, section 5.1), for a model without a run.
MAX_TOKENS = 2048
GRADERS_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What to evaluate and how; ``None`` and ``()`` mean the run's or the benchmark's value."""

    model: str | None = None
    revision: str | None = None
    server: str | None = None
    run: Path | None = None
    benchmarks: tuple[str, ...] = ()
    data_dir: Path | None = None
    problems: tuple[tuple[str, Path], ...] = ()
    limit: int | None = None
    by: tuple[str, ...] = ()
    any_row_count: bool = False
    out: Path | None = None
    name: str | None = None
    template: str | None = None
    stop: tuple[str, ...] | None = None
    chat: Mapping[str, Any] = field(default_factory=dict)
    """The fields of ``Chat`` that options set."""
    temperature: tuple[float, ...] = ()
    top_p: float = 1.0
    samples: int | None = None
    max_tokens: int | None = None
    seed: int = 0
    grader: str | None = None
    answers: str | None = None
    after_thinking: bool | None = None
    truncated_is_wrong: bool | None = None
    graders: int | None = None
    concurrency: int = 64
    data_parallel: int | None = None
    tensor_parallel: int = 1
    gpu_memory_share: float = 0.9
    dtype: str = "auto"


def parse_arguments(argv: Sequence[str] | None) -> Arguments:
    """Parse ``argv``, by default this process's arguments. Exits with status 2 if they do not parse."""
    about = "Evaluate a model without hints. The same command resumes a killed evaluation."
    parser = new_parser("seele eval", about)
    return to_arguments(parser, vars(parser.parse_args(argv)))


def new_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with all options of an evaluation, whose values ``to_arguments`` takes."""
    usage = f"{prog} [options]"  # not every option, above each error
    parser = argparse.ArgumentParser(prog=prog, usage=usage, description=description)
    _add_what(parser.add_argument_group("what"))
    _add_how(parser.add_argument_group("how (default: from the run or the benchmark)"))
    _add_where(parser.add_argument_group("on what"))
    return parser


def to_arguments(parser: argparse.ArgumentParser, values: dict[str, Any]) -> Arguments:
    """Return the arguments of an evaluation. Exits with status 2 if options contradict each other."""
    values["stop"] = chosen_stop(parser, values["stop"])
    values["chat"] = chosen_chat(parser, values)
    for key in ("benchmarks", "problems", "temperature", "by"):
        values[key] = tuple(values[key])
    return Arguments(**values)


def _add_what(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        type=not_empty,
        help="Hugging Face folder or name on the hub (default with --run: RUN/merged)",
    )
    group.add_argument("--revision", type=not_empty, help="commit, tag or branch of a model on the hub")
    group.add_argument(
        "--server", type=not_empty, help="ask this OpenAI-compatible server for --model; ends in /v1"
    )
    group.add_argument("--run", type=Path, help="run folder: its template, response limit, validation files")
    known = f"{', '.join([*BENCHMARKS, *GROUPS])}"
    group.add_argument("--benchmarks", type=names, default=(), help=f"with commas: {known}, or FILE.yaml")
    group.add_argument(
        "--data-dir", type=Path, help="folder with one subfolder per benchmark (default: the hub)"
    )
    group.add_argument(
        "--problems",
        type=_named_file,
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=FILE",
        help="parquet in our schema",
    )
    group.add_argument("--limit", type=positive, help="only the first LIMIT problems of each benchmark")
    group.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="COLUMN",
        help="also score each value of this column of the rows, such as subject or level; may be repeated",
    )
    group.add_argument(
        "--any-row-count", action="store_true", help="accept data with an unexpected number of rows"
    )
    group.add_argument("--out", type=Path, help="folder to write (default with --run: RUN/eval)")
    group.add_argument("--name", help="the model's name in tables (default: its folder's)")


def _add_how(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--template", type=not_empty, help="r1_zero, qwen, luffy, prime, plain, chat, a file, or FILE.py:NAME"
    )
    add_chat(group, has_run=True)
    add_stop(group)
    group.add_argument(
        "--temperature",
        type=temperature,
        nargs="+",
        default=(),
        help="0 is greedy; each value gets its own score",
    )
    group.add_argument("--top-p", type=share, default=1.0, help="default 1")
    group.add_argument("--samples", type=positive, help="completions per problem at temperatures above 0")
    group.add_argument(
        "--max-tokens", type=positive, help=f"longest response (default without --run: {MAX_TOKENS})"
    )
    group.add_argument("--seed", type=seed, default=0, help="seed of the samples; default 0")
    group.add_argument(
        "--grader",
        help="a grader of seele.reward, or your own reward function, FILE.py:FUNCTION (default: mathruler; "
        "with --run, on its own validation files: as in training)",
    )
    group.add_argument(
        "--answers",
        choices=ANSWERS,
        help="where to look for an answer: in a box; in a box or, without one, in the last 'answer is ...' "
        "or number (default with --template chat); or wherever Math-Verify finds it in the text",
    )
    as_trained = "(default with --run, on its own validation files: as in training)"
    group.add_argument(
        "--after-thinking",
        action=argparse.BooleanOptionalAction,
        help=f"only the text after the last </think> counts {as_trained}",
    )
    group.add_argument(
        "--truncated-is-wrong",
        action=argparse.BooleanOptionalAction,
        help=f"a response that hits the length limit is wrong, whatever it says {as_trained}",
    )


def add_chat(group: argparse._ActionsContainer, *, has_run: bool = False) -> None:
    """Add the options of ``--template chat``, which ``chosen_chat`` reads. ``has_run``: the command has
    ``--run``, whose settings are the defaults.
    """
    as_trained = " (default with --run: as in training)" if has_run else ""
    group.add_argument("--system", metavar="TEXT", help=f"system message, with --template chat{as_trained}")
    group.add_argument(
        "--chat-template-kwarg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"variable of the chat template, such as enable_thinking=false; may be repeated{as_trained}",
    )
    group.add_argument(
        "--open-thinking",
        action=argparse.BooleanOptionalAction,
        help=f"the prompt ends with <think>, with --template chat{as_trained}",
    )
    group.add_argument(
        "--ask",
        metavar="TEXT",
        help="text added after a question without \\boxed, with --template chat; empty for none "
        f"(default: {BOX_REQUEST}{' With --run: as in training' if has_run else ''})",
    )


def chosen_chat(parser: argparse.ArgumentParser, values: dict[str, Any]) -> dict[str, Any]:
    """Take the chat options out of ``values``, and return the fields of ``Chat`` that they set. Exits if a
    variable has no name.
    """
    pairs = [text.partition("=") for text in values.pop("chat_template_kwarg")]
    if wrong := [name for name, equals, _ in pairs if not (name.isidentifier() and equals)]:
        parser.error(f"argument --chat-template-kwarg: expected NAME=VALUE, got {wrong[0]!r}")
    try:
        kwargs = {name: yaml.safe_load(value) for name, _, value in pairs}
    except yaml.YAMLError as error:
        parser.error(f"argument --chat-template-kwarg: not a value in YAML: {error}")
    given = {name: values.pop(name) for name in ("system", "open_thinking", "ask")} | {
        "kwargs": kwargs or None
    }
    return {name: value for name, value in given.items() if value is not None}


def merge_chat(chat: Chat, given: Mapping[str, Any]) -> Chat:
    """Return ``chat`` with the fields that options set; variables are set one by one."""
    return replace(chat, **{**given, "kwargs": {**chat.kwargs, **given.get("kwargs", {})}})


def check_chat(template: str, given: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` if ``template`` would ignore the chat options."""
    if given and template != CHAT:
        raise ConfigError(
            f"--system, --chat-template-kwarg, --open-thinking and --ask: need --template {CHAT}, whose text "
            f"is the tokenizer's; got {template!r}"
        )


def advise(template: str, chat: Chat, *, answers: str, stop: Sequence[str], max_tokens: int) -> Advice:
    """Return advice on responses without an answer or an end, in terms of this package's options."""
    another = advise_template(template, chat, template_option="--template ", ask_option="--ask")
    last = f"--answers {BOX_OR_LAST}: without a box the last 'answer is ...' or number counts"
    start = "a warm start on worked solutions: seele model warm-start MODEL --problems FILE"
    return Advice(
        no_answer=(*another, *([last] if answers == BOX else []), start),
        truncated=(
            f"longer responses: --max-tokens, which is {max_tokens}",
            "where texts continue after the answer: --stop"
            + (f", which is {list(stop)}" if stop else " TEXT ends them there"),
        ),
    )


def add_stop(group: argparse._ActionsContainer) -> None:
    """Add the option ``--stop``, whose values ``chosen_stop`` reads."""
    group.add_argument(
        "--stop",
        action="append",
        nargs="?",
        const="",
        metavar="TEXT",
        help="a response ends before this text; may be repeated, empty for none (default: the template's)",
    )


def chosen_stop(parser: argparse.ArgumentParser, given: Sequence[str] | None) -> tuple[str, ...] | None:
    """The chosen stop strings; None for the template's. Exits if the options contradict each other."""
    if given is None:
        return None
    if "" in given and len(given) > 1:
        parser.error(f"argument --stop: an empty one means none and must stand alone, got {list(given)}")
    return tuple(dict.fromkeys(filter(None, given)))


def add_sampling(parser: argparse.ArgumentParser, *, samples: int, max_tokens: int) -> None:
    """Add the options of sampling under hints, with these defaults; ``parse_sampling`` reads them."""
    about = "completions per problem and hint; default %(default)s"
    parser.add_argument("--samples", type=positive, default=samples, help=about)
    parser.add_argument("--temperature", type=temperature, default=1.0, help="0 is greedy")
    parser.add_argument("--template", default="plain", help="prompt template")
    add_chat(parser)
    add_stop(parser)
    parser.add_argument("--max-tokens", type=positive, default=max_tokens, help="longest response")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the samples; default 0")
    default = RewardConfig().grader
    parser.add_argument("--grader", choices=[*GRADERS], default=default, help="default: %(default)s")
    add_engine(parser)


def parse_sampling(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line with a parser that has the options of ``add_sampling``.

    Raises:
        ConfigError: If all samples would be the same, or the template would ignore the chat options.
    """
    options = parser.parse_args(arguments)
    check_greedy(options.temperature, options.samples)
    options.stop = chosen_stop(parser, options.stop)
    given = chosen_chat(parser, vars(options))
    check_chat(options.template, given)
    options.chat = merge_chat(NO_CHAT, given)
    return options


def engine_settings(options: argparse.Namespace) -> EngineSettings:
    """The engine's settings in options of ``add_sampling``."""
    return EngineSettings(
        max_tokens=options.max_tokens,
        seed=options.seed,
        tensor_parallel=options.tensor_parallel,
        gpu_memory_share=options.gpu_memory_share,
        dtype=options.dtype,
    )


def _add_where(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--graders",
        type=positive,
        help=f"grading processes; default {GRADERS_AT_ONCE}, or for the run's own function its num_workers",
    )
    group.add_argument("--concurrency", type=positive, default=64, help="concurrent requests to a server")
    add_engine(group)


def add_engine(group: argparse._ActionsContainer) -> None:
    """Add the options of engines on this machine: their GPUs, memory and data type."""
    group.add_argument("--data-parallel", type=positive, help="copies of the model (default: all GPUs)")
    group.add_argument("--tensor-parallel", type=positive, default=1, help="GPUs per copy")
    group.add_argument("--gpu-memory-share", type=share, default=0.9, help="share for weights and cache")
    group.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16"),
        default="auto",
        help="data type of the engine's weights; auto is the model's own on a GPU, float32 on a CPU",
    )


def names(text: str) -> tuple[str, ...]:
    """Parse names between commas, at least one, as an argument's type."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"must be names, separated by commas, got {text!r}; or omit it")
    return found


def not_empty(text: str) -> str:
    """Return a text that is not blank, as an argument's type: a script's unset variable chooses nothing."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"must not be empty, got {text!r}; or omit it")
    return text


def _named_file(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"expected NAME=FILE.parquet, got {text!r}")
    return name, Path(path)


def positive(text: str) -> int:
    """Parse a whole number of at least 1, as an argument's type."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def share(text: str) -> float:
    """Parse a number above 0 and at most 1, as an argument's type."""
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1, got {text}")
    return value


def seed(text: str) -> int:
    """Parse a seed that NumPy and vLLM take, as an argument's type."""
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"must be from 0 to 4294967295 (2^32 - 1), got {text}")
    return value


def check_greedy(temperature: float, samples: int) -> None:
    """Raise ``ConfigError`` if all of several samples would be the same."""
    if temperature == 0 and samples > 1:
        raise ConfigError(
            f"--temperature 0 gives one sample, not {samples}; set --samples 1 or another temperature"
        )


def temperature(text: str) -> float:
    """Parse a finite number of at least 0, as an argument's type."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be 0 (greedy) or above, got {text}")
    return value
