"""Validation of the rows of a file of problems, with messages that locate the violation."""

import reprlib
from collections.abc import Mapping
from typing import Any

from seele.errors import DataError


def check_row(row: Mapping[str, Any], at: str) -> None:
    """Refuse a row that breaks the rules of ``seele.data.storage.schema.read_problems``.

    Raises:
        DataError: If it does; the message has the location, the column, the value and what is allowed.
    """
    steps = row["steps"]
    _check_texts(steps, f"{at}, column 'steps'", "step")
    if (tiers := row.get("tiers")) is not None:
        _check_texts(tiers, f"{at}, column 'tiers'", "tier")
    for name in ("instance_id", "data_source", "question", "answer"):
        allowed = "a text that is not blank" + ("; write numbers as text" if name == "answer" else "")
        _check_text(row[name], f"{at}, column {name!r}", allowed=allowed)
    level = row.get("level", 0)
    if not _is_count(level):
        raise DataError(
            f"{at}, column 'level': expected an integer >= 0 (0 = unknown) and < 2**63, got {shown(level)}"
        )
    revealed_at = row.get("revealed_at")
    if revealed_at is not None and not (_is_count(revealed_at) and revealed_at <= len(steps)):
        raise DataError(
            f"{at}, column 'revealed_at': expected an integer from 0 to {len(steps)}, the number of steps, "
            f"or null (unknown), got {shown(revealed_at)}"
        )
    _check_milestones(row.get("milestones"), sum(map(len, steps)), at)


def _check_milestones(milestones: Any, solution_chars: int, at: str) -> None:
    if milestones is None:
        return
    at = f"{at}, column 'milestones'"
    allowed = (
        "null (unknown) or a list of milestones with value (a text that is not blank), end (an integer, none "
        f"below the one before or above {solution_chars}, the solution's characters) and equations (texts), "
        "the final answer last; `seele data milestones` writes it"
    )
    if not isinstance(milestones, list) or not milestones:
        raise DataError(f"{at}: expected {allowed}; got {shown(milestones)}")
    least = 0
    for number, milestone in enumerate(milestones):
        match milestone:
            case {"value": str(value), "end": int(end), "equations": list(equations)} if (
                value.strip()
                and least <= end <= solution_chars
                and all(isinstance(e, str) for e in equations)
            ):
                least = end
            case _:
                raise DataError(f"{at}, number {number}: expected {allowed}; got {shown(milestone)}")


def is_unicode(text: str) -> bool:
    """Return True if ``text`` can be encoded; half a surrogate pair, which JSON can escape, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_unicode(text: str, at: str) -> None:
    """Refuse a text that is not valid Unicode.

    Raises:
        DataError: If it is not; the message has the location and the text.
    """
    if not is_unicode(text):
        raise DataError(f"{at}: expected text in valid Unicode, got half a surrogate pair in {shown(text)}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _check_text(value: Any, at: str, *, allowed: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{at}: expected {allowed}; got {shown(value)}")
    check_unicode(value, at)


def _check_texts(values: Any, at: str, what: str) -> None:
    if not isinstance(values, list):
        raise DataError(f"{at}: expected a list of texts, got {shown(values)}")
    for number, value in enumerate(values):
        _check_text(value, f"{at}, {what} {number}", allowed=f"a text that is not blank; drop blank {what}s")


class UniqueIds:
    """Refuses a second row with the same id."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._first_row: dict[str, int] = {}

    def check(self, instance_id: str, number: int) -> None:
        """Record the id of a row.

        Raises:
            DataError: If an earlier row has it.
        """
        earlier = self._first_row.setdefault(instance_id, number)
        if earlier != number:
            raise DataError(
                f"{self._at}: row {number} (counted from 0), column 'instance_id': "
                f"{shown(instance_id)} already occurs in row {earlier}; ids must be unique, "
                "because the hint controller identifies problems by them"
            )


def shown(value: Any) -> str:
    """Return a value, shortened, and its type for a message."""
    return "nothing (null)" if value is None else f"{reprlib.repr(value)} ({type(value).__name__})"
