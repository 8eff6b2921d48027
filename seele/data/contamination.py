"""Overlap of training problems with the questions of benchmarks: whole questions, and runs of words.

A question is taken as its *tokens*: words, numbers and operators, without case, without the commas of
thousands, without LaTeX's delimiters and spacing. A training problem overlaps with a benchmark's question if
all tokens are the same (*exact*), or if both have the same ``n`` words in a row (*n-gram*). A question with
fewer than ``n`` words is one n-gram, if it has at least six tokens: it overlaps with a problem that has all
of it in a row, such as one with an instruction or options around it. Shorter ones only count where exact.
Runs of words that many questions of the benchmarks share are the wording of the trade ("m and n are
relatively prime positive integers ...") and say nothing.

Where the questions come from does not live here: ``seele_eval.contamination`` brings those of the benchmarks.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

DEFAULT_N = 13
"""Words in a row, as for GPT-3 (arXiv:2005.14165, appendix C) and since."""

COMMON = 3
"""A run of words that this many different questions share is common wording."""

# A question with fewer tokens stands in too many others by chance.
_SHORTEST = 6

_NOISE = re.compile(
    r"(?P<thousands>(?<=\d)(?:,(?:\\!)?|\{,\}|\\,)(?=\d{3}(?!\d)))"
    r"|\\(?:left|right|displaystyle|textstyle|limits|quad|qquad|[dt](?=frac|binom))(?![a-z])|\\[,;:! ()\[\]]"
    r"|\\(?:text|textbf|textit|mathrm|mathbf|operatorname)(?![a-z])|\\\\"
)
_D_FRACTION = re.compile(r"\\[dt](frac|binom)(?![a-z])")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[-+*/^=<>|!%]")


@dataclass(frozen=True, slots=True)
class Overlap:
    """A training problem and a benchmark's question that say the same, in whole or in part."""

    benchmark: str
    question: int
    """Place of the question in its benchmark, from 0."""
    is_exact: bool
    shared: float
    """Share of the question's runs of ``n`` words that the problem has, in (0, 1]; 1 for all."""


class Questions:
    """Questions of several benchmarks, to look problems up in."""

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
            questions: By benchmark, without the options of a choice.
            with_options: The same with them, for *exact* overlaps only.
            n: Words in a row that make an overlap; at least 2.
            common: Different questions that share a run of words from which on it counts as common wording;
                at least 2.

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
        # After the runs: a question must not share its own with itself.
        self._add(with_options or {})

    def find(self, question: str) -> list[Overlap]:
        """Overlaps of a training problem's question, the exact ones first."""
        said = tokens(question)
        whole = " ".join(said)
        shared: defaultdict[str, int] = defaultdict(int)
        for run in self._runs(said):
            for text in self._texts_of_run.get(run, ()):
                shared[text] += 1
        for text in self._contained(said):
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
                # A question without any word or number overlaps with nothing.
                if whole := " ".join(tokens(text)):
                    # A mapping for its order: a question without options comes twice.
                    self._places_of_text[whole][benchmark, number] = None

    def _contained(self, said: Sequence[str]) -> set[str]:
        """The short questions that stand in a text as a whole, no formula going on at their ends."""
        found = set()
        for start in range(len(said) - _SHORTEST + 1):
            for text in self._short.get(tuple(said[start : start + _SHORTEST]), ()):
                end = start + text.count(" ") + 1
                is_there = " ".join(said[start:end]) == text
                if is_there and not (_is_within_formula(said, start) or _is_within_formula(said, end)):
                    found.add(text)
        return found

    def _runs(self, said: Sequence[str]) -> set[int]:
        """The different runs of ``n`` words, each as a hash of 64 bits: two that are different may collide
        once in about 10^13 look-ups.
        """
        words = [token for token in said if token[0].isalnum()]
        return {hash(" ".join(words[i : i + self._n])) for i in range(len(words) - self._n + 1)}


def tokens(text: str) -> list[str]:
    """Words, numbers and operators of a text, in order and without case."""
    text = unicodedata.normalize("NFKC", text).casefold().replace("\N{MINUS SIGN}", "-")
    text = _D_FRACTION.sub(r"\\\1", text)
    return _TOKEN.findall(_NOISE.sub(lambda match: "" if match["thousands"] else " ", text))


def _is_within_formula(said: Sequence[str], at: int) -> bool:
    """Whether the tokens on both sides of a place are numbers, operators or letters, and no words."""
    return 0 < at < len(said) and not any(len(each) > 1 and each.isalpha() for each in said[at - 1 : at + 1])


@dataclass(frozen=True, slots=True)
class Contaminated:
    """A training problem with its overlaps."""

    row: int
    """From 0."""
    instance_id: str
    overlaps: tuple[Overlap, ...]

    @property
    def best(self) -> Overlap:
        """The overlap that says most."""
        return self.overlaps[0]


def find_contaminated(
    problems: Iterable[tuple[str, str]], questions: Questions, *, min_shared: float = 0.0
) -> list[Contaminated]:
    """The problems that overlap with any question, in their order.

    Args:
        problems: Id and question of each.
        questions: Those of the benchmarks.
        min_shared: Leave out overlaps with a smaller share of the question's runs.
    """
    found = []
    for row, (instance_id, question) in enumerate(problems):
        overlaps = tuple(each for each in questions.find(question) if each.shared >= min_shared)
        if overlaps:
            found.append(Contaminated(row, instance_id, overlaps))
    return found
