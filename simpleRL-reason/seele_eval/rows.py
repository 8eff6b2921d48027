r"""Readers from a data set's row to a ``Problem``, one per schema.

A reader accepts both the local files of ``--data-dir`` and the pinned data set on the hub, and makes the same
problems from them. ``seele_eval.benchmarks`` assigns readers to files.
"""

import ast
import hashlib
import math
import re
import reprlib
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from seele.data.sources.mapping import as_level, as_text, look_up
from seele.data.tasks.gsm8k import split_solution
from seele.errors import DataError
from seele.reward.extract import last_boxed
from seele.reward.multiple_choice import LETTERS
from seele_eval.problems import Problem, choice_problem, open_problem, split_answers

RowReader = Callable[[Mapping[str, Any], str], Problem]
"""Turn a row and its place into a problem; raise ``DataError`` at that place if the row breaks the schema."""

_LABELS = (tuple(LETTERS), tuple(str(number) for number in range(1, len(LETTERS) + 1)))
_OPTION = re.compile(r"([A-Z]|\d)\) (.+)")
_GROUPED_DIGITS = re.compile(r"-?\d{1,3}(?:,\d{3})+")


def read_gsm8k(row: Mapping[str, Any], at: str) -> Problem:
    """GSM8K: ``question``, and ``answer`` with the gold in its last line, ``#### 1,234``."""
    question, solution = _text(row, at, "question"), _text(row, at, "answer")
    try:
        _, gold = split_solution(solution)
    except ValueError as error:
        raise DataError(f"{at}, key 'answer': {error}") from error
    return open_problem(question, gold)


def read_hmmt(row: Mapping[str, Any], at: str) -> Problem:
    """HMMT: as ``read_math``, but an ``answer`` may hold several, separated by commas."""
    problem = read_math(row, at)
    parts = () if _GROUPED_DIGITS.fullmatch(problem.answer) else split_answers(problem.answer)
    return open_problem(problem.question, *parts) if len(parts) > 1 else problem


def read_math(row: Mapping[str, Any], at: str) -> Problem:
    r"""MATH-500, Minerva, AIME, AMC: ``problem``, and ``answer`` or the last ``\boxed{}`` of ``solution``."""
    question = _text(row, at, "problem" if "problem" in row else "question")
    value, solution = row.get("answer"), row.get("solution")
    answer = as_text(value)
    # pandas writes NaN for a missing value.
    if (value is None or (isinstance(value, float) and math.isnan(value))) and _is_text(solution):
        answer = last_boxed(str(solution))
    if answer is None or not answer.strip():
        raise DataError(
            f"{at}: expected an 'answer' that is a text or a number, or a 'solution' whose last \\boxed{{}} "
            f"is closed, got {reprlib.repr(dict(row))}"
        )
    level = row.get("level")
    return open_problem(question, answer, level=level if isinstance(level, int) else 0)


def read_olympiad(row: Mapping[str, Any], at: str) -> Problem:
    """OlympiadBench: ``final_answer`` is a list; an item may be wrapped in ``$`` and hold several answers."""
    question, answers = _text(row, at, "question"), row.get("final_answer")
    if isinstance(answers, str) and answers.startswith("["):
        answers = ast.literal_eval(answers)
    if isinstance(answers, str):
        answers = [answers]
    if not isinstance(answers, list) or not answers or not all(map(_is_text, answers)):
        raise DataError(f"{at}, key 'final_answer': expected a list of texts, got {reprlib.repr(answers)}")
    bare = [answer.strip().strip("$") for answer in answers]
    if row.get("is_multiple_answer"):
        bare = [part for answer in bare for part in split_answers(answer)]
    return open_problem(question, *bare, unit=str(row.get("unit") or "").strip("$"))


def read_arc(row: Mapping[str, Any], at: str) -> Problem:
    """ARC-C: LUFFY's chat rows, with the options as lines of the question, or the hub's ``choices``."""
    if "choices" in row:
        choices = row["choices"]
        options = dict(zip(choices["label"], choices["text"], strict=True))
        return _choice(_text(row, at, "question"), options, row.get("answerKey"), at)
    try:
        content, gold = row["prompt"][-1]["content"], row["reward_model"]["ground_truth"]
        question, _, lines = content.strip().rpartition("\n\n")
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"{at}: expected 'choices' or a chat in 'prompt', got {reprlib.repr(dict(row))}"
        ) from error
    matches = [_OPTION.fullmatch(line.strip()) for line in lines.split("\n")]
    if not all(matches):
        raise DataError(f"{at}: expected options such as 'A) text', a line each, got {reprlib.repr(lines)}")
    return _choice(question, {match[1]: match[2] for match in matches if match}, gold, at)


def read_gpqa(row: Mapping[str, Any], at: str) -> Problem:
    """GPQA: one right and three wrong answers, shuffled here by a hash of their texts."""
    question, right = _text(row, at, "Question").strip(), _text(row, at, "Correct Answer").strip()
    texts = [right, *(_text(row, at, f"Incorrect Answer {number}").strip() for number in (1, 2, 3))]
    mixed = sorted(texts, key=lambda text: hashlib.sha256(f"{question}\x1f{text}".encode()).digest())
    return choice_problem(question, _lettered(mixed), string.ascii_uppercase[mixed.index(right)])


def read_mmlu_pro(row: Mapping[str, Any], at: str) -> Problem:
    """MMLU-Pro: one to ten ``options`` and the letter of the right one."""
    options = row.get("options")
    if not isinstance(options, list) or not 1 <= len(options) <= 10 or not all(map(_is_text, options)):
        raise DataError(f"{at}, key 'options': expected 1 to 10 texts, got {reprlib.repr(options)}")
    return _choice(_text(row, at, "question"), _lettered(options), row.get("answer"), at)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumns:
    """The columns of a user's own benchmark, as paths (``seele.data.sources.mapping``)."""

    question: str = "question"
    answer: str = "answer"
    """A text, a number, or a list of these, which must all be given, in any order. With options, the label of
    the right one.
    """
    options: str | None = None
    """A list of at most ten texts, whose labels are A, B, C, or a mapping to them from the labels A, B, C or
    1, 2, 3, in any order.
    """
    level: str | None = None


def read_columns(columns: RowColumns, *, judged_one_by_one: bool = True) -> RowReader:
    """Return a reader of rows with these columns.

    Args:
        columns: Where a row has what.
        judged_one_by_one: True if the answers of a list are joined, and taken apart again by
            ``split_answers``; a list that would come apart in another way is then refused.
    """

    def read(row: Mapping[str, Any], at: str) -> Problem:
        if not isinstance(row, Mapping):
            raise DataError(f"{at}: expected a row with columns, got {reprlib.repr(row)}")
        question, value = look_up(row, columns.question), look_up(row, columns.answer)
        if not _is_text(question):
            raise DataError(
                f"{at}, column {columns.question!r}: expected a text that is not blank, got "
                f"{reprlib.repr(question)}; the row has {list(row)}"
            )
        answers = [as_text(each) for each in (value if isinstance(value, list) else [value])]
        if not answers or not all(map(_is_text, answers)):
            raise DataError(
                f"{at}, column {columns.answer!r}: expected a text, a number or a list of these, got "
                f"{reprlib.repr(value)}; the row has {list(row)}"
            )
        try:
            level = as_level(look_up(row, columns.level)) if columns.level else 0
        except ValueError as error:
            raise DataError(f"{at}, column {columns.level!r}: {error}") from error
        if columns.options is None:
            texts = [str(answer).strip() for answer in answers]
            if judged_one_by_one and len(texts) > 1:
                texts = [_without_separators(text, f"{at}, column {columns.answer!r}") for text in texts]
            return open_problem(question, *texts, level=level)
        options = look_up(row, columns.options)
        if isinstance(options, list):
            options = _lettered(options)
        elif isinstance(options, Mapping):  # parquet fills up the labels that other rows have
            options = {label: text for label, text in options.items() if text is not None}
        if not isinstance(options, Mapping) or not options or not all(map(_is_text, options.values())):
            raise DataError(f"{at}, column {columns.options!r}: expected texts, got {reprlib.repr(options)}")
        by_label = {str(label): text for label, text in options.items()}
        return replace(_choice(question, by_label, ", ".join(map(str, answers)), at), level=level)

    return read


def _choice(question: str, options: dict[str, str], gold: Any, at: str) -> Problem:
    if gold not in options:
        raise DataError(f"{at}: the gold {gold!r} is not one of the options {list(options)}")
    # Judges read an option's label as its position.
    labels = next((each for each in _LABELS if set(each[: len(options)]) == options.keys()), None)
    if labels is None:
        raise DataError(
            f"{at}: expected 1 to {len(LETTERS)} options with the labels A, B, C, ... or 1, 2, 3, ..., got "
            f"{list(options)}"
        )
    return choice_problem(question, {label: options[label].strip() for label in labels[: len(options)]}, gold)


def _without_separators(answer: str, at: str) -> str:
    """One answer of a list without thousands separators, which look like those between answers."""
    if _GROUPED_DIGITS.fullmatch(answer):
        return answer.replace(",", "")
    # Next to another answer, a set keeps its braces, and a sign \pm always makes two answers.
    parts = split_answers(answer.replace("\\pm", "") + ", 0")
    if len(parts) != 2:
        raise DataError(
            f"{at}: the entry {answer!r} of the list is read as {len(parts) - 1} answers, {parts[:-1]}; make "
            "each answer an entry, or write brackets around an answer with commas"
        )
    return answer


def _lettered(texts: list[str]) -> dict[str, str]:
    return dict(zip(string.ascii_uppercase, texts, strict=False))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _text(row: Mapping[str, Any], at: str, key: str) -> str:
    value = row.get(key) if isinstance(row, Mapping) else None
    if not _is_text(value):
        raise DataError(f"{at}, key {key!r}: expected a text that is not blank, got {reprlib.repr(value)}")
    return str(value)
