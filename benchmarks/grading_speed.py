"""Measure how many answers are graded per second, in all and by kind of answer.

    python benchmarks/grading_speed.py                       # 2 processes, MathRuler, 20,000 answers
    python benchmarks/grading_speed.py --grader strict+ --answers 2000

The answers are ordinary ones, as in a step's rollouts: mostly integers, then fractions, decimals, surds,
tuples, words and polynomials. Half of them are right, and a third of those are written like the reference
answer. No pair occurs twice in a row's answers, and each row has processes of its own, so that no result is
reused. The processes are warm, and the caller's own work is counted.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable

from seele.config.settings import RewardConfig
from seele.maths.tables import markdown_table
from seele.reward.grader import GraderPool

Pair = tuple[str, str]
"""Answer and gold."""


def integer(rng: random.Random) -> Pair:
    gold = rng.randint(-999, 99_999)
    answer = gold if rng.random() < 0.5 else gold + rng.randint(1, 99)
    return rng.choice([f"{answer}", f"{answer:,}", f"{answer}.0", rf"{answer} \text{{ km}}"]), str(gold)


def fraction(rng: random.Random) -> Pair:
    top, bottom = rng.randint(1, 999), rng.randint(2, 99)
    other = top if rng.random() < 0.5 else top + 1
    form = rng.choice([r"\frac{{{}}}{{{}}}", r"\dfrac{{{}}}{{{}}}", "{}/{}", r"\tfrac{{{}}}{{{}}}"])
    return form.format(other, bottom), rf"\frac{{{top}}}{{{bottom}}}"


def decimal(rng: random.Random) -> Pair:
    gold = rng.randint(1, 99_999) / 100
    answer = gold if rng.random() < 0.5 else gold + 0.5
    return rng.choice([f"{answer}", f"{answer}0", f"\\${answer}"]), str(gold)


def surd(rng: random.Random) -> Pair:
    factor, root = rng.randint(2, 999), rng.choice([2, 3, 5, 6, 7, 10, 11, 13])
    inside = factor**2 * root if rng.random() < 0.5 else factor * root
    return rf"\sqrt{{{inside}}}", rf"{factor}\sqrt{{{root}}}"


def pair_of_numbers(rng: random.Random) -> Pair:
    x, y = rng.randint(-99, 99), rng.randint(-99, 99)
    return f"({x}, {y + rng.randint(0, 1)})", f"({x},{y})"


def word(rng: random.Random) -> Pair:
    gold, answer = (
        rng.choice(["Evelyn", "odd", "even", "Friday", "ellipse"]) + str(rng.randint(1, 999)) for _ in "ab"
    )
    return rng.choice([rf"\text{{{gold}}}", answer]), gold


def polynomial(rng: random.Random) -> Pair:
    a, b = rng.randint(1, 99), rng.randint(1, 99)
    return f"(x+{a})(x+{b})", f"x^2+{a + b}x+{a * b + rng.randint(0, 1)}"


# Shares of the ordinary answers, out of 20.
KINDS: dict[Callable[[random.Random], Pair], int] = {
    integer: 11,
    fraction: 3,
    decimal: 2,
    surd: 1,
    pair_of_numbers: 1,
    word: 1,
    polynomial: 1,
}


def answers_of(kind: Callable[[random.Random], Pair], count: int, *, seed: int) -> list[Pair]:
    """Return ``count`` different pairs of a kind."""
    rng, pairs = random.Random(seed), dict[Pair, None]()
    while len(pairs) < count:
        pairs[kind(rng)] = None
    return list(pairs)


def ordinary_answers(count: int, *, seed: int) -> list[Pair]:
    """Return ``count`` different pairs, with the shares of ``KINDS``, in random order."""
    parts = [answers_of(kind, count * share // 20, seed=seed) for kind, share in KINDS.items()]
    pairs = [pair for part in parts for pair in part]
    random.Random(seed).shuffle(pairs)
    return pairs


def answers_per_second(pairs: list[Pair], *, grader: str, workers: int) -> float:
    """Return the rate of one call with all pairs."""
    with GraderPool(RewardConfig(grader=grader, num_workers=workers)) as pool:
        pool.grade_answers([(f"{number}.5", "1+x") for number in range(4 * workers)])
        start = time.perf_counter()
        pool.grade_answers(pairs)
        return len(pairs) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--grader", default="mathruler")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--answers", type=int, default=20_000, help="of the mixture, at most 100,000")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    if not 20 <= settings.answers <= 100_000:
        parser.error(f"--answers {settings.answers}: expected 20 to 100,000; some kinds have no more")
    answers = {"ordinary mixture": ordinary_answers(settings.answers, seed=settings.seed)}
    for kind in KINDS:
        name = kind.__name__.replace("_", " ")
        answers[name] = answers_of(kind, settings.answers // 10, seed=settings.seed)
    how = {"grader": settings.grader, "workers": settings.workers}
    rows = [(name, answers_per_second(pairs, **how)) for name, pairs in answers.items()]
    table = markdown_table(("answers", "a second"), [(name, f"{rate:,.0f}") for name, rate in rows])
    sys.stdout.write(f"{settings.grader}, {settings.workers} processes\n\n{table}")


if __name__ == "__main__":
    main()
