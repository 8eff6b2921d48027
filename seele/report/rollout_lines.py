"""Read the lines of ``rollouts/step_N.jsonl``, for the report and for the browser."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_origin

from seele.records import GradeReason, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRollout:
    """A line of ``rollouts/step_N.jsonl``. Fields that an older release did not write have their defaults."""

    instance_id: str
    question: str
    text: str
    reason: str
    round: int
    """From 0."""
    rollout: int = 0
    answer: str = ""
    data_source: str = ""
    level: str = ""
    hint: str = ""
    hint_ratio: float = 0.0
    predicted_accuracy: float | None = None
    reward: float = 0.0
    reward_extra: Mapping[str, float | str] = field(default_factory=dict)
    """What the user's reward function returned beside the score, by name."""
    finish: str = ""
    hint_tokens: int = 0
    generated_tokens: int = 0
    is_probe: bool = False
    origin: str = Origin.POLICY.value
    advantage: float | None = None
    segments: Sequence[tuple[int, int, int, bool]] = ()
    """Segments of a walked response: first token, token after the last, milestone, whether it passed."""
    line_start: int | None = None
    """Where the file's line begins, in bytes, if its tokens were skipped."""
    tokens: Sequence[str] = ()
    """The response's tokens, if the run keeps them (``seele.dump_tokens``) and they were read."""
    token_advantages: Sequence[float] = ()
    token_log_ratios: Sequence[float] = ()
    """Log-probability before the update minus that of the engine, token by token."""

    @property
    def is_correct(self) -> bool:
        """True if the answer was correct."""
        return self.reason == GradeReason.CORRECT

    @property
    def is_given(self) -> bool:
        """True if the policy did not generate it in this step: a worked solution, or a replay."""
        return self.origin != Origin.POLICY


TOKENS = b', "tokens": ['
"""Begins the tokens in a line of a file of rollouts."""
_KINDS: dict[Any, Any] = {
    **{str: str, int: int, bool: bool, float: (int, float)},
    **{UnionType: (int, float, NoneType), Mapping: dict, Sequence: list},
}
_FIELDS = {each.name: _KINDS[get_origin(each.type) or each.type] for each in fields(ShownRollout)}
"""What a line's values must be."""
# SQLite's whole numbers have 64 bits: a larger one is read as a fraction, which no count may be.
_DECODER = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < 19 else float(digits))


def read_rollouts(file: Path, notes: list[str]) -> Iterator[ShownRollout]:
    """Yield the rollouts of a file without their tokens, which are a hundred times as large as the rest.

    Damaged lines are skipped and added to ``notes``, one sentence each.
    """
    start = 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            # They are the line's last fields. A quote within a text is escaped, so this is in no text.
            rest, skipped, _ = line.partition(TOKENS)
            if rollout := parse_rollout(rest + b"}" if skipped else line, start if skipped else None):
                yield rollout
            elif line.strip():
                notes.append(f"{file.name} holds an entry that cannot be read (line {number}).")
            start += len(line)


def parse_rollout(line: bytes, line_start: int | None = None) -> ShownRollout | None:
    """Return the rollout in a line of JSON; None if it is damaged.

    Args:
        line: The line, with or without tokens.
        line_start: As in ``ShownRollout``.
    """
    try:
        text = line.decode(errors="replace")
        values = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            # Half of a surrogate pair cannot be written to a page or an index: it becomes a question mark.
            values = json.loads(json.dumps(values, ensure_ascii=False).encode(errors="replace"))
        known = {name: values[name] for name in _FIELDS.keys() & values.keys()}
        known |= {"level": str(known.get("level") or ""), "line_start": line_start}  # level 0 is unknown
        if not all(isinstance(value, _FIELDS[name]) for name, value in known.items()):
            return None
        rollout = ShownRollout(**known)
        return rollout if _can_be_shown(rollout) else None
    except (AttributeError, TypeError, ValueError):
        return None


def _can_be_shown(rollout: ShownRollout) -> bool:
    """Return True if the lists hold what they should, and the hint ratio is a number."""
    return (
        all(isinstance(each, str) for each in rollout.tokens)
        and all(isinstance(each, int | float) for each in rollout.token_advantages)
        and all(isinstance(each, int | float) for each in rollout.token_log_ratios)
        and all(len(each) == 4 and all(isinstance(part, int) for part in each) for each in rollout.segments)
        and not math.isnan(rollout.hint_ratio)
    )
