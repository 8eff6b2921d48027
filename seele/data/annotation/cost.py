"""Cost of an annotation: prices per token, a forecast before the run, and a limit during it."""

import threading
from dataclasses import dataclass

from seele.data.annotation.calls import Annotator, Call, Task
from seele.data.annotation.ledger import Account, CallLedger
from seele.data.annotation.reply import Judge
from seele.errors import ConfigError

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per million tokens, in any currency."""

    per_million_in: float = 0.0
    per_million_out: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.per_million_in < float("inf") and 0.0 <= self.per_million_out < float("inf")):
            raise ConfigError(
                f"prices must be 0 or above, got {self.per_million_in} in and {self.per_million_out} out"
            )

    @property
    def are_given(self) -> bool:
        """True if any price is set."""
        return bool(self.per_million_in or self.per_million_out)

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """Return the cost of this number of tokens."""
        return (tokens_in * self.per_million_in + tokens_out * self.per_million_out) / _MILLION

    def paid(self, account: Account) -> float:
        """Return the cost of all replies."""
        return self.cost(account.tokens_in, account.tokens_out)

    def spent(self, account: Account) -> float:
        """Return the cost of all replies, plus the most that lost requests can have cost."""
        return self.paid(account) + self.lost(account)

    def lost(self, account: Account) -> float:
        """Return the most that requests without a reply can have cost."""
        return self.cost(account.lost_tokens_in, account.lost_tokens_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is left to ask, computed before anything is asked."""

    tasks: int
    """Different problems."""
    calls: int
    """Problems that still need a reply: none of their recorded replies is kept, and attempts are left."""
    tokens_in: int
    tokens_out: int
    """Expected tokens, with one reply for each of these problems."""
    cost: float
    """Cost of these tokens."""
    most: float
    """Cost if every problem used all its remaining attempts, and every reply all its tokens."""


def forecast(
    tasks: list[Task],
    annotator: Annotator,
    ledger: CallLedger,
    judge: Judge,
    prices: Prices,
    *,
    reply_tokens: int,
) -> Forecast:
    """Return what the annotation of ``tasks`` is expected to cost.

    Args:
        tasks: Tasks without duplicates.
        annotator: The annotator to ask.
        ledger: Recorded replies, which cost nothing.
        judge: Decides which of these replies are kept.
        prices: Prices of the tokens.
        reply_tokens: Expected length of a reply, in tokens.
    """
    left = [calls for task in tasks if (calls := _calls_left(task, annotator, ledger, judge))]
    tokens_in, tokens_out = sum(calls[0].tokens_in for calls in left), len(left) * reply_tokens
    return Forecast(
        tasks=len(tasks),
        calls=len(left),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=prices.cost(tokens_in, tokens_out),
        most=sum(prices.cost(call.tokens_in, call.tokens_out) for calls in left for call in calls),
    )


def _calls_left(task: Task, annotator: Annotator, ledger: CallLedger, judge: Judge) -> list[Call]:
    """Return the remaining attempts at a problem."""
    left: list[Call] = []
    for attempt in range(annotator.attempts):
        call = annotator.call(task, attempt)
        reply = ledger.replies.get(call.key)
        if reply is None:
            left.append(call)
        elif judge(reply, task.instance)[1] is None:
            break
    return left


class Budget:
    """The money left. The most that each request in flight can cost is set aside for it. Thread-safe."""

    def __init__(self, prices: Prices, *, limit: float, spent: float) -> None:
        """Begin with what earlier processes have spent.

        Args:
            prices: Prices of the tokens.
            limit: Most that may be spent in total; infinity for no limit.
            spent: Amount spent so far.
        """
        self._prices, self._limit = prices, limit
        self._spent, self._set_aside, self._under_way = spent, 0.0, 0
        self._changed = threading.Condition()

    def set_aside(self, call: Call) -> bool:
        """Set money aside for a request and return True, or return False if there is not enough.

        Waits while that depends on requests in flight.
        """
        most = self._prices.cost(call.tokens_in, call.tokens_out)
        with self._changed:
            while self._spent + self._set_aside + most > self._limit:
                # Requests in flight may cost less than is set aside for them.
                if not self._under_way or self._spent + most > self._limit:
                    return False
                self._changed.wait()
            self._set_aside += most
            self._under_way += 1
            return True

    def settle(self, call: Call, paid: float | None) -> None:
        """Replace what was set aside for a request by its cost; if that is None, count all of it as spent."""
        most = self._prices.cost(call.tokens_in, call.tokens_out)
        with self._changed:
            self._under_way -= 1
            # Rounding errors must not stay set aside forever.
            self._set_aside = self._set_aside - most if self._under_way else 0.0
            self._spent += most if paid is None else paid
            self._changed.notify_all()
