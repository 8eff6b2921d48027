"""What an annotation costs: by prices per token, estimated beforehand, kept below a limit while it runs."""

import threading
from dataclasses import dataclass

from seele.data.annotation.calls import Annotator, Call, Task
from seele.data.annotation.ledger import Account, CallLedger
from seele.data.annotation.reply import Judge
from seele.errors import ConfigError

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """In whatever currency, for a million tokens."""

    per_million_in: float = 0.0
    per_million_out: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.per_million_in < float("inf") and 0.0 <= self.per_million_out < float("inf")):
            raise ConfigError(
                f"prices must be 0 or above, got {self.per_million_in} in and {self.per_million_out} out"
            )

    @property
    def are_given(self) -> bool:
        """Whether anything costs anything."""
        return bool(self.per_million_in or self.per_million_out)

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """The cost of this number of tokens."""
        return (tokens_in * self.per_million_in + tokens_out * self.per_million_out) / _MILLION

    def paid(self, account: Account) -> float:
        """Of all replies."""
        return self.cost(account.tokens_in, account.tokens_out)

    def spent(self, account: Account) -> float:
        """Of all replies, and at most of all requests that are lost."""
        return self.paid(account) + self.lost(account)

    def lost(self, account: Account) -> float:
        """Most that requests without a reply can have cost."""
        return self.cost(account.lost_tokens_in, account.lost_tokens_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is left to ask, before anything is asked."""

    tasks: int
    """Different problems."""
    calls: int
    """Of these, that need a reply: none of those that are there is kept, and attempts are left."""
    tokens_in: int
    tokens_out: int
    """As expected of one reply for each of these."""
    cost: float
    """Of these."""
    most: float
    """If every problem took all attempts that it has left, and every reply all its tokens."""


def forecast(
    tasks: list[Task],
    annotator: Annotator,
    ledger: CallLedger,
    judge: Judge,
    prices: Prices,
    *,
    reply_tokens: int,
) -> Forecast:
    """What the annotation of ``tasks`` is expected to cost.

    Args:
        tasks: Different ones.
        annotator: Whom to ask.
        ledger: Replies that are there cost nothing.
        judge: Says which of them are kept.
        prices: By the token.
        reply_tokens: Expected length of a reply.
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
    """The attempts at a problem that may still be made."""
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
    """Money that is left. What every request under way can cost at most is set aside for it. Thread-safe."""

    def __init__(self, prices: Prices, *, limit: float, spent: float) -> None:
        """Begin with what earlier processes have spent.

        Args:
            prices: By the token.
            limit: Most that may be spent in all; infinity for no limit.
            spent: So far.
        """
        self._prices, self._limit = prices, limit
        self._spent, self._set_aside, self._under_way = spent, 0.0, 0
        self._changed = threading.Condition()

    def set_aside(self, call: Call) -> bool:
        """Whether there is money for a request. Waits where that depends on what is under way."""
        most = self._prices.cost(call.tokens_in, call.tokens_out)
        with self._changed:
            while self._spent + self._set_aside + most > self._limit:
                # What is under way may come to less than is set aside for it.
                if not self._under_way or self._spent + most > self._limit:
                    return False
                self._changed.wait()
            self._set_aside += most
            self._under_way += 1
            return True

    def settle(self, call: Call, paid: float | None) -> None:
        """Take what a request has cost for what was set aside; None: all of it, for the cost is unknown."""
        most = self._prices.cost(call.tokens_in, call.tokens_out)
        with self._changed:
            self._under_way -= 1
            # Rounding must not hold anything back for ever.
            self._set_aside = self._set_aside - most if self._under_way else 0.0
            self._spent += most if paid is None else paid
            self._changed.notify_all()
