"""A ledger of an annotation's requests and replies, so that nothing is paid for twice.

One line is written before every request, and one after every reply or refusal. A request without the second
line was in flight when the process was killed, or got no readable reply: it may have been paid for, is
counted as lost, and may be sent again. Several models, prompts and files of problems may share a ledger.
"""

import json
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from seele.data.annotation.calls import Call
from seele.data.storage.append_log import LineAppender, read_whole_lines
from seele.endpoint import Reply
from seele.errors import CheckpointError
from seele.records import Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Totals of one model's calls."""

    replies: int
    tokens_in: int
    tokens_out: int
    lost_calls: int
    """Calls without a readable reply."""
    lost_tokens_in: int
    """Most prompt tokens that the lost calls can have cost."""
    lost_tokens_out: int


class CallLedger:
    """Recorded replies, to which new ones are appended. Thread-safe; open in one process at a time."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it exists; nothing is changed before ``__enter__``.

        Raises:
            CheckpointError: If the file is damaged anywhere but at its end, or is not a ledger.
        """
        self._path = path
        self._read = read_whole_lines(path, begin=b'{"event": ')
        self._lock = threading.Lock()
        self.replies: dict[str, Reply] = {}
        """Replies by the key of their call."""
        self._models: dict[str, str] = {}
        self._requests: dict[str, list[tuple[int, int]]] = {}
        """Unfinished requests by the key of their call: most tokens in and out."""
        for number, line in enumerate(self._read.lines, start=1):
            try:
                self._apply(json.loads(line))
            except (ValueError, LookupError, TypeError) as error:
                raise CheckpointError(
                    f"{path}: line {number} is damaged ({error}); remove the line, and its content is "
                    "requested again"
                ) from error

    def sent(self, call: Call) -> None:
        """Record that a request is about to be sent."""
        most = {"tokens_in": call.tokens_in, "tokens_out": call.tokens_out}
        self._append({"event": "sent", "key": call.key, "model": call.model, **most})

    def unpaid(self, call: Call) -> None:
        """Record that a request came back at no cost."""
        self._append({"event": "unpaid", "key": call.key})

    def replied(self, call: Call, reply: Reply) -> None:
        """Record the reply to a request; once this returns, it survives a crash of the machine."""
        self._append({"event": "reply", "key": call.key, "reply": asdict(reply)}, durable=True)

    def account(self, model: str) -> Account:
        """Return the totals of the calls of ``model``, including those of earlier processes."""
        with self._lock:
            replies = [reply for key, reply in self.replies.items() if self._models[key] == model]
            lost = [
                most for key, each in self._requests.items() if self._models[key] == model for most in each
            ]
        return Account(
            replies=len(replies),
            tokens_in=sum(reply.tokens_in or 0 for reply in replies),
            tokens_out=sum(reply.tokens_out for reply in replies),
            lost_calls=len(lost),
            lost_tokens_in=sum(tokens_in for tokens_in, _ in lost),
            lost_tokens_out=sum(tokens_out for _, tokens_out in lost),
        )

    def served_as(self, model: str) -> dict[str, int]:
        """Count the replies by the name that the server reports for ``model``, which may change over time."""
        with self._lock:
            names = Counter(reply.model for key, reply in self.replies.items() if self._models[key] == model)
        return dict(sorted(names.items()))

    def _append(self, event: dict[str, Any], *, durable: bool = False) -> None:
        self._appender.append(json.dumps(event, ensure_ascii=False), durable=durable)
        self._apply(event)

    def _apply(self, event: Mapping[str, Any]) -> None:
        key = event["key"]
        with self._lock:
            if event["event"] == "sent":
                self._models[key] = event["model"]
                self._requests.setdefault(key, []).append((event["tokens_in"], event["tokens_out"]))
                return
            self._requests[key].pop()
            if event["event"] == "reply":
                self.replies[key] = _to_reply(event["reply"])
            elif event["event"] != "unpaid":
                raise ValueError(f"unknown event {event['event']!r}")

    def __enter__(self) -> Self:
        """Open for appending.

        Raises:
            ConfigError: If another process writes to the same file, or has written meanwhile.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._appender = LineAppender(
            self._path, whole_bytes=self._read.whole_bytes, total_bytes=self._read.total_bytes
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._appender.close()


def _to_reply(row: Mapping[str, Any]) -> Reply:
    return Reply(**{**row, "finish": Finish(row["finish"])})
