"""Overlap of training problems with the questions of benchmarks: whole questions, and runs of words.

A question is taken as its *tokens*: words, numbers and operators, without case, without the commas of
thousands, without LaTeX's delimiters and spacing. A training problem overlaps with a benchmark's question if
all tokens are the same (*exact*), or if both have the same ``n`` words in a row (*n-gram*). A question with
fewer than ``n`` words is compared as a whole only. Runs of words that many questions of the benchmarks share
are the wording of the trade ("m and n are relatively prime positive integers ...") and say nothing.

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
"""A run of words that so many different questions share is common wording."""

_NOISE = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|limits|quad|qquad|[dt](?=frac|binom))(?![a-z])|\\[,;:! ()\[\]]"
    r"|\\(?:text|textbf|textit|mathrm|mathbf|operatorname)(?![a-z])|(?<=\d),(?=\d{3}(?!\d))|\\\\"
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
    """Share of the question's runs of ``n`` words that the problem has, in (0, 1]; 1 where exact."""


class Questions:
    """Questions of several benchmarks, to look problems up in."""

    def __init__(
        self, questions: Mapping[str, Sequence[str]], *, n: int = DEFAULT_N, common: int = COMMON
    ) -> None:
        """Index the questions.

        Args:
            questions: By benchmark, without the options of a choice.
            n: Words in a row that make an overlap; at least 2.
            common: Different questions that share a run of words from which on it counts as common wording;
                at least 2.

        Raises:
            ValueError: If ``n`` or ``common`` is below 2.
        """
        if n < 2 or common < 2:
            raise ValueError(f"n and common must be at least 2, got {n} and {common}")
        self._n = n
        self._places_of_text: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for benchmark, texts in questions.items():
            for number, text in enumerate(texts):
                # A question without any word or number overlaps with nothing.
                if whole := " ".join(tokens(text)):
                    self._places_of_text[whole].append((benchmark, number))
        texts_of_run: defaultdict[int, list[str]] = defaultdict(list)
        self._num_runs: dict[str, int] = {}
        for whole in self._places_of_text:
            runs = self._runs(whole.split())
            self._num_runs[whole] = len(runs)
            for run in runs:
                texts_of_run[run].append(whole)
        self._texts_of_run = {run: texts for run, texts in texts_of_run.items() if len(texts) < common}

    def find(self, question: str) -> list[Overlap]:
        """Overlaps of a training problem's question, the exact ones first."""
        said = tokens(question)
        whole = " ".join(said)
        shared: defaultdict[str, int] = defaultdict(int)
        for run in self._runs(said):
            for text in self._texts_of_run.get(run, ()):
                shared[text] += 1
        found = [
            Overlap(benchmark, number, is_exact=True, shared=1.0)
            for benchmark, number in self._places_of_text.get(whole, ())
        ]
        found += [
            Overlap(benchmark, number, is_exact=False, shared=count / self._num_runs[text])
            for text, count in shared.items()
            if text != whole
            for benchmark, number in self._places_of_text[text]
        ]
        return sorted(
            found, key=lambda each: (not each.is_exact, -each.shared, each.benchmark, each.question)
        )

    def _runs(self, said: Sequence[str]) -> set[int]:
        """The different runs of ``n`` words, each as a hash of 64 bits: two that are different may collide
        once in about 10^13 look-ups.
        """
        words = [token for token in said if token[0].isalnum()]
        return {hash(" ".join(words[i : i + self._n])) for i in range(len(words) - self._n + 1)}


def tokens(text: str) -> list[str]:
    """Words, numbers and operators of a text, in order and without case."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _D_FRACTION.sub(r"\\\1", text)
    return _TOKEN.findall(_NOISE.sub(lambda match: "" if match[0] == "," else " ", text))


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
