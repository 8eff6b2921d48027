"""The grading process: reads questions, writes verdicts, and lets the kernel end it when one costs too much.

Started as ``python -m seele.reward.worker GRADER TIME_LIMIT_S MEMORY_LIMIT_MB``. A line in is ``{"answer": a,
"gold": g}``; a line out is ``{"correct": bool}``, or ``{"error": text}`` where the grader raised. The first
line out says that the libraries are loaded. The graders are MathRuler 0.1.0, which the SEELE paper uses, and
Math-Verify 0.9, a second opinion.

Why a process: both graders hand text to sympy, which may take for ever or take all memory. A thread cannot be
killed, and MathRuler's bare ``except`` swallows whatever a signal handler raises, so each limit ends the
process itself. sympy also evaluates text as Python. MathRuler lets only expressions with at most two
different letters through, and ``is_mathematics`` narrows that; neither is a sandbox.
"""

import functools
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NoReturn, ParamSpec, TextIO, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

Judge = Callable[[str, str], bool]
"""Answer and gold in, verdict out."""

# Names with a double underscore, statements, strings, keywords, attributes of a name or of a bracket.
_PYTHON = re.compile(r"__|[;'\"]|\b(?:import|lambda)\b|[^\W\d]\.[^\W\d]|[)\]]\.[^\W\d]")


def is_mathematics(expression: str) -> bool:
    """False for what sympy would run as Python rather than read as a formula.

    Args:
        expression: As MathRuler is about to evaluate it, without blanks.
    """
    return _PYTHON.search(expression) is None


def die_of_memory() -> NoReturn:
    """End the process: after a failed allocation its verdict would be a guess."""
    os._exit(os.EX_OSERR)


def load_judge(grader: str) -> Judge:
    """The grader of that name, ready to be called; takes a second or two."""
    return GRADERS[grader]()


def serve(questions: Iterable[str], replies: TextIO, judge: Judge, *, time_limit_s: float) -> None:
    """Answer each line of ``questions`` with a line of ``replies``, until there are no more.

    A verdict that takes more than ``time_limit_s`` of processor time ends the process with SIGPROF: processor
    time, so that a busy machine changes no reward.
    """
    for line in questions:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, time_limit_s)
        try:
            reply = _reply(judge, question["answer"], question["gold"])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


# Runs in the child only: it limits the process it is called in.
def main(grader: str, time_limit_s: str, memory_limit_mb: str) -> None:  # pragma: no cover
    """Load the grader, give up what it must not have, and serve standard input."""
    judge = load_judge(grader)
    judge("(x+1)^2", "x^2+2x+1")  # fills sympy's caches, which the first answer would otherwise pay for
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a library prints must not look like a verdict.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    limit_bytes = int(memory_limit_mb) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies.write("ready\n")
    replies.flush()
    serve(sys.stdin, replies, judge, time_limit_s=float(time_limit_s))


def _reply(judge: Judge, answer: str, gold: str) -> dict[str, Any]:
    try:
        return {"correct": bool(judge(answer, gold))}
    except MemoryError:
        die_of_memory()
    except Exception as error:  # noqa: BLE001 - the text is anybody's, and so is what a grader raises on it
        return {"error": f"{type(error).__name__}: {error}"}


@functools.cache  # wraps functions of the imported module: once
def _load_mathruler() -> Judge:
    grader: Any = import_module("mathruler.grader")
    may_evaluate: Callable[[str], bool] = grader.should_allow_eval
    grader.should_allow_eval = lambda expression: may_evaluate(expression) and is_mathematics(expression)
    # The two calls inside MathRuler's bare ``except``, which would turn a lack of memory into "wrong".
    grader._sympy_parse = _fatal_without_memory(grader._sympy_parse)
    grader.sympy = SimpleNamespace(simplify=_fatal_without_memory(grader.sympy.simplify))
    judge: Judge = grader.grade_answer
    return judge


def _load_math_verify() -> Judge:
    library: Any = import_module("math_verify")

    def judge(answer: str, gold: str) -> bool:
        # Its own time limits are alarms; ours are above.
        parsed_gold, parsed_answer = (
            library.parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer)
        )
        return bool(library.verify(parsed_gold, parsed_answer, timeout_seconds=None))

    return judge


GRADERS: dict[str, Callable[[], Judge]] = {"mathruler": _load_mathruler, "math_verify": _load_math_verify}


def _fatal_without_memory(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except MemoryError:
            die_of_memory()

    return call


if __name__ == "__main__":
    main(*sys.argv[1:])
