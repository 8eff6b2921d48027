r"""The grading process: reads questions, writes verdicts, and lets the kernel end it when one costs too much.

``seele.reward.process`` starts it as
``python -m seele.reward.worker GRADER TIME_LIMIT_S MEMORY_LIMIT_MB [KWARGS]``; with keyword arguments, as
JSON, GRADER names a user's own reward function. It consists of two processes. One loads the libraries, which
takes a second or two, and after that only forks. Its child gives up what grading does not need
(``seele.reward.sandbox``) and grades; if an answer ends it, the next child starts within milliseconds, with
everything loaded.

An input line is ``{"batch": n, "pairs": [[answer, gold], ...]}``. An output line is
``{"batch": n, "correct": bool}`` for each pair, in order, or ``{"batch": n, "error": text}`` if the grader
raised; ``{"ended": status}`` means that the child is dead, with its exit status or minus its signal. The
first output line means that the libraries are loaded.

A user's function receives ``[[arguments], ...]`` and is answered by ``{"score": number, "extra": {...}}`` or
``{"fault": text}``. It has limits on time and memory, and keeps all other rights: it is the user's own code,
and may read files or import as it runs.

Why a process: the graders pass text to sympy, which may run forever or take all memory. A thread cannot be
killed, and MathRuler's bare ``except`` swallows whatever a signal handler raises, so each limit ends the
process itself.
"""

import asyncio
import gc
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from seele.errors import PluginError
from seele.reward import sandbox
from seele.reward.function import Item, load_function, raised, read_result
from seele.reward.graders import Judge, die_of_memory, load_judge

# sympy caches many of its results; a child that has graded this many answers makes room for a fresh one.
_MAX_ANSWERS = 10_000
_MAKE_ROOM = os.EX_TEMPFAIL


def serve(
    messages: Iterable[str],
    replies: TextIO,
    judge: Judge | Callable[[Item], Mapping[str, Any]],
    *,
    time_limit_s: float,
    max_answers: int = _MAX_ANSWERS,
) -> bool:
    """Answer each message with one line of ``replies`` per pair.

    A verdict that takes more than ``time_limit_s`` of processor time ends the process with SIGPROF. The limit
    is on processor time, so that a busy machine changes no reward.

    Returns:
        True if there may be more messages: it stops after the message that reaches ``max_answers`` answers.
    """
    num_answers = 0
    for line in messages:
        message = json.loads(line)
        for pair in message["pairs"]:
            signal.setitimer(signal.ITIMER_PROF, time_limit_s)
            try:
                reply = _reply(judge, *pair)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0.0)
            # One by one: replies written before the process ends need not be repeated.
            replies.write(json.dumps({"batch": message["batch"]} | reply) + "\n")
            replies.flush()
        num_answers += len(message["pairs"])
        if num_answers >= max_answers:
            return True
    return False


def keep_alive(work: Callable[[], int], replies: TextIO) -> None:
    """Do ``work`` in a child, and again in a new one whenever one ends, until its exit status is 0."""
    while True:
        pid = os.fork()
        if not pid:
            try:
                os._exit(work())
            finally:  # an exception must not reach the code that forked
                os._exit(os.EX_SOFTWARE)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == os.EX_OK:
            return
        if status != _MAKE_ROOM:
            replies.write(json.dumps({"ended": status}) + "\n")
            replies.flush()


# Runs only in its own processes: a sandbox cannot be undone.
def main(
    grader: str, time_limit_s: str, memory_limit_mb: str, kwargs: str | None = None
) -> None:  # pragma: no cover
    """Load the grader and serve standard input."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Output that a library or the user's module prints must not look like a verdict.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    if kwargs is None:
        judge: Any = load_judge(grader)
        # Fills sympy's caches and triggers lazy imports, which every child would otherwise repeat.
        _reply(judge, r"\frac{(x+1)^2}{2}", "x^2/2+x+0.5")
    else:
        judge = score_by(grader, json.loads(kwargs))
    gc.freeze()
    # Until here, an error may explain itself.
    os.dup2(nowhere, 2)
    if kwargs is None:
        sandbox.enter_nowhere()

    def work() -> int:
        if kwargs is None:
            sandbox.give_up(int(memory_limit_mb))
        else:
            sandbox.limit_memory(int(memory_limit_mb))
        return _MAKE_ROOM if serve(sys.stdin, replies, judge, time_limit_s=float(time_limit_s)) else os.EX_OK

    replies.write("ready\n")
    replies.flush()
    keep_alive(work, replies)


def score_by(spec: str, kwargs: Mapping[str, Any]) -> Callable[[Item], dict[str, Any]]:
    """The user's function as a judge, which returns its reward and further values, or what it did wrong."""
    function = load_function(spec, kwargs)
    # One event loop for all calls: a client that lives as long as the module belongs to one loop.
    runner = asyncio.Runner()

    def score(item: Item) -> dict[str, Any]:
        try:
            result = function(**{**item, **kwargs})
            if inspect.isawaitable(result):
                result = runner.run(_await(result))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - the function is the user's
            return {"fault": str(raised(function, item, error))}
        try:
            reward, extra = read_result(result, function, item)
        except PluginError as error:
            return {"fault": str(error)}
        return {"score": reward, "extra": extra}

    return score


async def _await(result: Any) -> Any:
    return await result


def _reply(judge: Callable[..., Any], *pair: Any) -> dict[str, Any]:
    try:
        verdict = judge(*pair)
        return verdict if isinstance(verdict, dict) else {"correct": bool(verdict)}
    except MemoryError:
        die_of_memory()
    except Exception as error:  # noqa: BLE001 - the text is arbitrary, and so is what a grader raises on it
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main(*sys.argv[1:])
