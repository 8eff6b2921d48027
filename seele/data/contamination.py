"""Overlap of training problems with benchmark questions: whole questions, and n-grams of words.

A question is reduced to its *tokens*: words, numbers and operators, ignoring case, thousands separators, and
LaTeX delimiters and spacing. A training problem overlaps with a benchmark question if all tokens are the
same (*exact*), or if both contain the same ``n`` words in a row (*n-gram*). A question with fewer than ``n``
words is one n-gram if it has at least six tokens: it overlaps with a problem that contains all of it in a
row, such as one with an instruction or options around it. Shorter questions only count as exact matches.
N-grams that many benchmark questions share are common wording ("m and n are relatively prime positive
integers ...") and are ignored.

The benchmark questions are loaded elsewhere, in ``seele_eval.contamination``.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

DEFAULT_N = 13
"""Words in an n-gram, as for GPT-3 (arXiv:2005.14165, appendix C) and since."""

COMMON = 3
"""An n-gram that this many different questions share is common wording."""

# A question with fewer tokens occurs in too many others by chance.
_SHORTEST = 6

_NOISE = re.compile(
    r"(?P<thousands>(?<=\d)(?:,(?:\\!)?|\{,\}|\\,)(?=\d{3}(?!\d)))"
    r"|\\(?:left|right|displaystyle|textstyle|limits|quad|qquad|[dt](?=frac|binom))(?![a-z])|\\[,;:! ()\[\]]"
    r"|\\(?:text|textbf|textit|mathrm|mathbf|operatorname)(?![a-z])|\\\\"
)
_D_FRACTION = re.compile(r"\\[dt](frac|binom)(?![a-z])")
_END = re.compile(r"(?<=[.?!])\s+|\n\s*(?=\(?[A-Ja-j1-9][).])")
"""Between sentences, and before the label of an option."""
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[-+*/^=<>|!%]")


@dataclass(frozen=True, slots=True)
class Overlap:
    """An overlap of a training problem with a benchmark question, in whole or in part."""

    benchmark: str
    question: int
    """Index of the question in its benchmark, from 0."""
    is_exact: bool
    shared: float
    """Share of the question's n-grams that the problem contains, in (0, 1]."""


class Questions:
    """An index of the questions of several benchmarks, in which problems are looked up."""

    def __init__(
        self,
        questions: Mapping[str, Sequence[str]],
        *,
        with_options: Mapping[str, Sequence[str]] | None = None,
        n: int = DEFAULT_N,
        common: int = COMMON,
    ) -> None:
        """Index the questions.

        Args:
            questions: Questions by benchmark, without multiple-choice options.
            with_options: The same questions with their options, for *exact* overlaps only.
            n: Words in an n-gram; at least 2.
            common: An n-gram that at least this many different questions share counts as common wording; at
                least 2.

        Raises:
            ValueError: If ``n`` or ``common`` is below 2.
        """
        if n < 2 or common < 2:
            raise ValueError(f"n and common must be at least 2, got {n} and {common}")
        self._n = n
        self._places_of_text: defaultdict[str, dict[tuple[str, int], None]] = defaultdict(dict)
        self._add(questions)
        texts_of_run: defaultdict[int, list[str]] = defaultdict(list)
        self._num_runs: dict[str, int] = {}
        self._short: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        """Questions of fewer than ``n`` words, by their first tokens."""
        for whole in self._places_of_text:
            said = whole.split()
            runs = self._runs(said)
            self._num_runs[whole] = len(runs) or 1
            if not runs and len(said) >= _SHORTEST:
                self._short[tuple(said[:_SHORTEST])].append(whole)
            for run in runs:
                texts_of_run[run].append(whole)
        self._texts_of_run = {run: texts for run, texts in texts_of_run.items() if len(texts) < common}
        # After the n-grams: a question must not share its n-grams with itself.
        self._add(with_options or {})

    def find(self, question: str) -> list[Overlap]:
        """Return the overlaps of a training problem's question, the exact ones first."""
        said = tokens(question)
        whole = " ".join(said)
        shared: defaultdict[str, int] = defaultdict(int)
        for run in self._runs(said):
            for text in self._texts_of_run.get(run, ()):
                shared[text] += 1
        for text in self._contained(said, question):
            shared[text] = 1
        exact = self._places_of_text.get(whole, {})
        found = [Overlap(benchmark, number, is_exact=True, shared=1.0) for benchmark, number in exact]
        found += [
            Overlap(benchmark, number, is_exact=False, shared=count / self._num_runs[text])
            for text, count in shared.items()
            for benchmark, number in self._places_of_text[text]
            if (benchmark, number) not in exact
        ]
        return sorted(
            found, key=lambda each: (not each.is_exact, -each.shared, each.benchmark, each.question)
        )

    def _add(self, questions: Mapping[str, Sequence[str]]) -> None:
        for benchmark, texts in questions.items():
            for number, text in enumerate(texts):
                # A question without words or numbers overlaps with nothing.
                if whole := " ".join(tokens(text)):
                    # A dict as an ordered set: a question without options is added twice.
                    self._places_of_text[whole][benchmark, number] = None

    def _contained(self, said: Sequence[str], question: str) -> set[str]:
        """Return the short questions that a text contains whole, with no formula running past either end.
        ``said`` are the text's tokens.
        """
        found = set()
        for start in range(len(said) - _SHORTEST + 1):
            for text in self._short.get(tuple(said[start : start + _SHORTEST]), ()):
                end = start + text.count(" ") + 1
                is_there = " ".join(said[start:end]) == text
                if is_there and not any(
                    _is_within_formula(said, at) for at in {start, end} - _beginnings(question)
                ):
                    found.add(text)
        return found

    def _runs(self, said: Sequence[str]) -> set[int]:
        """Return the distinct n-grams, each as a 64-bit hash; different n-grams collide about once in 10^13
        look-ups.
        """
        words = [token for token in said if token[0].isalnum()]
        return {hash(" ".join(words[i : i + self._n])) for i in range(len(words) - self._n + 1)}


def tokens(text: str) -> list[str]:
    """Return the words, numbers and operators of a text, in order and case-folded."""
    text = unicodedata.normalize("NFKC", text).casefold().replace("\N{MINUS SIGN}", "-")
    text = _D_FRACTION.sub(r"\\\1", text)
    return _TOKEN.findall(_NOISE.sub(lambda match: "" if match["thousands"] else " ", text))


def _beginnings(text: str) -> set[int]:
    """Return which of a text's tokens begin a sentence or an option."""
    return {*accumulate(len(tokens(part)) for part in _END.split(text))}


def _is_within_formula(said: Sequence[str], at: int) -> bool:
    """Return True if the tokens on both sides of a position are numbers, operators or letters, not words."""
    return 0 < at < len(said) and not any(len(each) > 1 and each.isalpha() for each in said[at - 1 : at + 1])


@dataclass(frozen=True, slots=True)
class Contaminated:
    """A training problem with its overlaps."""

    row: int
    """Row of the problem, from 0."""
    instance_id: str
    overlaps: tuple[Overlap, ...]

    @property
    def best(self) -> Overlap:
        """The strongest overlap."""
        return self.overlaps[0]


def find_contaminated(
    problems: Iterable[tuple[str, str]], questions: Questions, *, min_shared: float = 0.0
) -> list[Contaminated]:
    """Return the problems that overlap with any question, in their order.

    Args:
        problems: Id and question of each problem.
        questions: The benchmark questions.
        min_shared: Skip overlaps with a smaller share of the question's n-grams.
    """
    found = []
    for row, (instance_id, question) in enumerate(problems):
        overlaps = tuple(each for each in questions.find(question) if each.shared >= min_shared)
        if overlaps:
            found.append(Contaminated(row, instance_id, overlaps))
    return found
