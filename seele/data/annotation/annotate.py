"""Texts from an annotator: every problem is asked about until a reply is kept or the attempts end.

Start here; then ``prompt`` and ``tiers`` (what is asked and kept for worked solutions and for hints),
``calls`` (with which settings), ``ledger`` (what is never paid for again), ``cost``, ``file`` and ``report``.
What comes out is a function of the problems, the settings and the replies, whatever was killed and how many
requests were under way.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import islice

from seele.data.annotation.calls import Annotator, Call, Task
from seele.data.annotation.cost import Budget, Prices
from seele.data.annotation.ledger import CallLedger
from seele.data.annotation.reply import Judge, Rejection, Texts
from seele.endpoint import (
    GaveUpError,
    PassingError,
    Patience,
    RefusedError,
    Reply,
    RequestRefusedError,
    exchange,
    read_reply,
)
from seele.errors import DataError

_PATH = "/chat/completions"

# This number of problems in a row without a reply is not the problems' fault.
_LONGEST_STREAK = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one task."""

    texts: Texts = ()
    """Steps or tiers; empty where none were kept."""
    rejections: tuple[Rejection, ...] = ()
    """Why the replies before were not kept, in order of the attempts."""
    failure: Rejection | None = None
    """Why there is no further reply: refused, given up, or no money left."""
    failure_text: str = ""
    """In words."""

    @property
    def reason(self) -> Rejection | None:
        """Why there are no texts: what came last. None where there are."""
        return None if self.texts else self.failure or self.rejections[-1]

    @property
    def replies(self) -> int:
        """How many were judged."""
        return len(self.rejections) + bool(self.texts)


class OutOfBudgetError(Exception):
    """There is no money for a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One run's collaborators."""

    annotator: Annotator
    ledger: CallLedger
    """Open."""
    judge: Judge
    prices: Prices
    budget: Budget
    patience: Patience

    def run(
        self, tasks: Iterable[Task], *, concurrency: int, on_outcome: Callable[[Outcome], None]
    ) -> dict[Task, Outcome]:
        """The outcome of every task.

        Args:
            tasks: Different ones.
            concurrency: Requests under way at the same time.
            on_outcome: Called in this thread, as outcomes come.

        Raises:
            RefusedError: If the server wants nothing of this kind.
            DataError: If it does not reply about many problems in a row. What it replied before is recorded.
        """
        outcomes: dict[Task, Outcome] = {}
        streak = 0
        with ThreadPoolExecutor(concurrency) as threads:
            # Within the try: an interrupt while tasks are submitted must cancel them, too.
            try:
                left = iter(tasks)
                # No more than can be under way: each outcome decides whether another task begins.
                pending = {threads.submit(self.work_out, task): task for task in islice(left, concurrency)}
                while pending:
                    for future in wait(pending, return_when=FIRST_COMPLETED).done:
                        outcome = outcomes[pending.pop(future)] = future.result()
                        on_outcome(outcome)
                        streak = streak + 1 if outcome.failure and not outcome.replies else 0
                        if streak >= _LONGEST_STREAK and outcome.failure is not Rejection.BUDGET:
                            raise DataError(
                                f"no reply about {streak} problems in a row, the last time because: "
                                f"{outcome.failure_text}. What was replied before is kept; the same command "
                                "goes on"
                            )
                        if (task := next(left, None)) is not None:
                            pending[threads.submit(self.work_out, task)] = task
            finally:
                # Whatever is under way is still waited for and recorded: it is paid for.
                self.patience.stop()
                threads.shutdown(wait=True, cancel_futures=True)
        return outcomes

    def work_out(self, task: Task) -> Outcome:
        """Ask, or look up, until a reply is kept."""
        rejections: list[Rejection] = []
        for attempt in range(self.annotator.attempts):
            call = self.annotator.call(task, attempt)
            try:
                reply = self.ledger.replies.get(call.key) or self._ask(call)
            except OutOfBudgetError:
                return Outcome(rejections=tuple(rejections), failure=Rejection.BUDGET)
            except (GaveUpError, RequestRefusedError) as error:
                kind = Rejection.GAVE_UP if isinstance(error, GaveUpError) else Rejection.REFUSED
                return Outcome(rejections=tuple(rejections), failure=kind, failure_text=str(error))
            texts, rejection = self.judge(reply, task.instance)
            if rejection is None:
                return Outcome(texts=texts, rejections=tuple(rejections))
            rejections.append(rejection)
        return Outcome(rejections=tuple(rejections))

    def _ask(self, call: Call) -> Reply:
        at = f"{self.annotator.endpoint.url}{_PATH}"
        return self.patience.insist(lambda: self._ask_once(call), at=at)

    def _ask_once(self, call: Call) -> Reply:
        if not self.budget.set_aside(call):
            raise OutOfBudgetError
        paid: float | None = 0.0
        try:
            # Money may have been waited for until the reply is not waited for any more.
            self.patience.check()
            self.ledger.sent(call)
            paid = None
            reply = read_reply(exchange(self.annotator.endpoint, _PATH, call.payload))
            if reply.tokens_in is None:
                reply = replace(reply, tokens_in=call.tokens_in)
            self.ledger.replied(call, reply)
            paid = self.prices.cost(reply.tokens_in or 0, reply.tokens_out)
        except (PassingError, RefusedError) as error:
            if not isinstance(error, PassingError) or error.is_unpaid:
                self.ledger.unpaid(call)
                paid = 0.0
            raise
        else:
            return reply
        finally:
            self.budget.settle(call, paid)
