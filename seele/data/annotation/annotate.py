"""Texts from an annotator: each problem is sent until a reply is kept or the attempts run out.

Start here; then ``prompt`` and ``tiers`` (what is asked and kept for worked solutions and for hints),
``calls`` (with which settings), ``ledger`` (what is never paid for again), ``cost``, ``file`` and ``report``.
The output depends only on the problems, the settings and the replies, not on interruptions or on the number
of concurrent requests.
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

# If this number of problems in a row gets no reply, the problems are not the cause.
_LONGEST_STREAK = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one task."""

    texts: Texts = ()
    """Steps or tiers; empty where none were kept."""
    rejections: tuple[Rejection, ...] = ()
    """Why the earlier replies were not kept, in order of the attempts."""
    failure: Rejection | None = None
    """Why there is no further reply: refused, given up, or out of budget."""
    failure_text: str = ""
    """Description of the failure."""
    is_from_server: bool = False
    """True if the server replied in this run; else all replies are recorded ones, if there are any."""

    @property
    def reason(self) -> Rejection | None:
        """The last reason why there are no texts; None if there are texts."""
        return None if self.texts else self.failure or self.rejections[-1]

    @property
    def replies(self) -> int:
        """Number of replies that were judged."""
        return len(self.rejections) + bool(self.texts)


class OutOfBudgetError(Exception):
    """The budget does not cover a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """Everything that one run needs."""

    annotator: Annotator
    ledger: CallLedger
    """Must be open."""
    judge: Judge
    prices: Prices
    budget: Budget
    patience: Patience

    def run(
        self, tasks: Iterable[Task], *, concurrency: int, on_outcome: Callable[[Outcome], None]
    ) -> dict[Task, Outcome]:
        """Return the outcome of every task.

        Args:
            tasks: Tasks without duplicates.
            concurrency: Number of concurrent requests.
            on_outcome: Called in this thread, as outcomes arrive.

        Raises:
            RefusedError: If the server rejects all requests of this kind.
            DataError: If the server does not reply for many problems in a row. Earlier replies are recorded.
        """
        outcomes: dict[Task, Outcome] = {}
        streak, has_replied = 0, False
        with ThreadPoolExecutor(concurrency) as threads:
            # Within the try: an interrupt while tasks are being submitted must cancel them, too.
            try:
                left = iter(tasks)
                # No more than can run at once: each outcome decides whether another task begins.
                pending = {threads.submit(self.work_out, task): task for task in islice(left, concurrency)}
                while pending:
                    for future in wait(pending, return_when=FIRST_COMPLETED).done:
                        outcome = outcomes[pending.pop(future)] = future.result()
                        on_outcome(outcome)
                        # A server that replies to others refuses a request for its content, such as length.
                        passed_over = (
                            (Rejection.BUDGET, Rejection.REFUSED) if has_replied else (Rejection.BUDGET,)
                        )
                        if outcome.is_from_server:
                            streak, has_replied = 0, True
                        elif outcome.failure and outcome.failure not in passed_over:
                            streak += 1
                        if streak >= _LONGEST_STREAK:
                            raise DataError(
                                f"no reply for {streak} problems in a row; the last failure: "
                                f"{outcome.failure_text}. Earlier replies are kept; run the same command to "
                                "continue"
                            )
                        if (task := next(left, None)) is not None:
                            pending[threads.submit(self.work_out, task)] = task
            finally:
                # Requests in flight are still awaited and recorded: they are paid for.
                self.patience.stop()
                threads.shutdown(wait=True, cancel_futures=True)
        return outcomes

    def work_out(self, task: Task) -> Outcome:
        """Send requests, or look up recorded replies, until a reply is kept."""
        outcome = Outcome()
        for attempt in range(self.annotator.attempts):
            call = self.annotator.call(task, attempt)
            reply = self.ledger.replies.get(call.key)
            if reply is None:
                try:
                    reply = self._ask(call)
                except OutOfBudgetError:
                    return replace(outcome, failure=Rejection.BUDGET)
                except (GaveUpError, RequestRefusedError) as error:
                    kind = Rejection.GAVE_UP if isinstance(error, GaveUpError) else Rejection.REFUSED
                    return replace(outcome, failure=kind, failure_text=str(error))
                outcome = replace(outcome, is_from_server=True)
            texts, rejection = self.judge(reply, task.instance)
            if rejection is None:
                return replace(outcome, texts=texts)
            outcome = replace(outcome, rejections=(*outcome.rejections, rejection))
        return outcome

    def _ask(self, call: Call) -> Reply:
        at = f"{self.annotator.endpoint.url}{_PATH}"
        return self.patience.insist(lambda: self._ask_once(call), at=at)

    def _ask_once(self, call: Call) -> Reply:
        if not self.budget.set_aside(call):
            raise OutOfBudgetError
        paid: float | None = 0.0
        try:
            # The run may have been stopped while this call waited for budget.
            self.patience.check()
            self.ledger.sent(call)
            paid = None
            endpoint = self.annotator.endpoint
            reply = read_reply(exchange(endpoint, _PATH, call.payload), key=endpoint.key)
            if reply.tokens_in is None:
                reply = replace(reply, tokens_in=call.tokens_in)
            self.ledger.replied(call, reply)
            paid = self.prices.cost(reply.tokens_in or 0, reply.tokens_out)
        except (PassingError, RefusedError) as error:
            if error.is_unpaid:
                self.ledger.unpaid(call)
                paid = 0.0
            raise
        else:
            return reply
        finally:
            self.budget.settle(call, paid)
