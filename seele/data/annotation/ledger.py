"""What an annotation has asked and been answered, so that nothing is paid for twice.

A line before every request, a line after every reply or refusal. A request without the second was under way
when the process was killed, or came to nothing that could be read: it may have been paid for, is counted as
lost, and may be asked again. Replies of several models, prompts and files of problems may share a ledger.
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
    """What one model's calls have come to."""

    replies: int
    tokens_in: int
    tokens_out: int
    lost_calls: int
    """Without a reply that was read."""
    lost_tokens_in: int
    """Most that they can have cost; likewise below."""
    lost_tokens_out: int


class CallLedger:
    """Replies that are there, and replies that come. Thread-safe; open in one process at a time."""

    def __init__(self, path: Path) -> None:
        """Read what is there; nothing is changed before ``__enter__``.

        Raises:
            CheckpointError: If the file is damaged elsewhere than at its end.
        """
        self._path = path
        self._read = read_whole_lines(path)
        self._lock = threading.Lock()
        self.replies: dict[str, Reply] = {}
        """By the key of their call."""
        self._models: dict[str, str] = {}
        self._requests: dict[str, list[tuple[int, int]]] = {}
        """Requests without an end, by the key of their call: most tokens in and out."""
        for number, line in enumerate(self._read.lines, start=1):
            try:
                self._apply(json.loads(line))
            except (ValueError, LookupError, TypeError) as error:
                raise CheckpointError(
                    f"{path}: line {number} is damaged ({error}); remove the line, and what it held is "
                    "asked again"
                ) from error

    def sent(self, call: Call) -> None:
        """Write that a request is about to go out."""
        most = {"tokens_in": call.tokens_in, "tokens_out": call.tokens_out}
        self._append({"event": "sent", "key": call.key, "model": call.model, **most})

    def unpaid(self, call: Call) -> None:
        """Write that a request came back without having cost anything."""
        self._append({"event": "unpaid", "key": call.key})

    def replied(self, call: Call, reply: Reply) -> None:
        """Write the reply to a request; it survives the machine once this returns."""
        self._append({"event": "reply", "key": call.key, "reply": asdict(reply)}, durable=True)

    def account(self, model: str) -> Account:
        """What the calls of ``model`` have come to, those of earlier processes included."""
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
        """Replies by what the server called ``model``: a name may mean another model next month."""
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
