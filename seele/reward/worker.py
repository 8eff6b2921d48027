r"""The grading process: reads questions, writes verdicts, and lets the kernel end it when one costs too much.

Started as ``python -m seele.reward.worker GRADER TIME_LIMIT_S MEMORY_LIMIT_MB`` by ``seele.reward.process``.
It is two processes. One loads the libraries, which takes a second or two, and from then on does nothing but
fork. Its child gives up what grading does not need (``seele.reward.sandbox``) and grades; where an answer
ends it, the next one is there within milliseconds, with everything loaded.

A line in is ``{"batch": n, "pairs": [[answer, gold], ...]}``. A line out is ``{"batch": n, "correct": bool}``
for each pair, in order, or ``{"batch": n, "error": text}`` where the grader raised; ``{"ended": status}``
says that the child is dead, with its exit status or minus its signal. The first line out says that the
libraries are loaded.

Why a process: the graders hand text to sympy, which may take for ever or take all memory. A thread cannot be
killed, and MathRuler's bare ``except`` swallows whatever a signal handler raises, so each limit ends the
process itself.
"""

import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from seele.reward import sandbox
from seele.reward.graders import Judge, die_of_memory, load_judge

# sympy remembers much of what it worked out; a child that has graded so many answers makes room for a fresh
# one.
_MAX_ANSWERS = 10_000
_MAKE_ROOM = os.EX_TEMPFAIL


def serve(
    messages: Iterable[str],
    replies: TextIO,
    judge: Judge,
    *,
    time_limit_s: float,
    max_answers: int = _MAX_ANSWERS,
) -> bool:
    """Answer each message with a line of ``replies`` a pair.

    A verdict that takes more than ``time_limit_s`` of processor time ends the process with SIGPROF: processor
    time, so that a busy machine changes no reward.

    Returns:
        Whether there may be more messages: it stops at the end of one after ``max_answers`` answers.
    """
    num_answers = 0
    for line in messages:
        message = json.loads(line)
        for answer, gold in message["pairs"]:
            signal.setitimer(signal.ITIMER_PROF, time_limit_s)
            try:
                reply = _reply(judge, answer, gold)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0.0)
            # One by one: what is written before the process ends need not be graded again.
            replies.write(json.dumps({"batch": message["batch"]} | reply) + "\n")
            replies.flush()
        num_answers += len(message["pairs"])
        if num_answers >= max_answers:
            return True
    return False


def keep_alive(work: Callable[[], int], replies: TextIO) -> None:
    """Do ``work`` in a child, and again in another whenever one ends, until its exit status is 0."""
    while True:
        pid = os.fork()
        if not pid:
            try:
                os._exit(work())
            finally:  # whatever was raised must not reach the code that forked
                os._exit(os.EX_SOFTWARE)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == os.EX_OK:
            return
        if status != _MAKE_ROOM:
            replies.write(json.dumps({"ended": status}) + "\n")
            replies.flush()


# Runs in processes of its own only: there is no way back from a sandbox.
def main(grader: str, time_limit_s: str, memory_limit_mb: str) -> None:  # pragma: no cover
    """Load the grader and serve standard input."""
    judge = load_judge(grader)
    # Fills sympy's caches and loads what libraries load late, which every child would otherwise pay for.
    _reply(judge, r"\frac{(x+1)^2}{2}", "x^2/2+x+0.5")
    gc.freeze()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a library prints must not look like a verdict.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sandbox.enter_nowhere()

    def work() -> int:
        sandbox.give_up(int(memory_limit_mb))
        return _MAKE_ROOM if serve(sys.stdin, replies, judge, time_limit_s=float(time_limit_s)) else os.EX_OK

    replies.write("ready\n")
    replies.flush()
    keep_alive(work, replies)


def _reply(judge: Judge, answer: str, gold: str) -> dict[str, Any]:
    try:
        return {"correct": bool(judge(answer, gold))}
    except MemoryError:
        die_of_memory()
    except Exception as error:  # noqa: BLE001 - the text is anybody's, and so is what a grader raises on it
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main(*sys.argv[1:])
