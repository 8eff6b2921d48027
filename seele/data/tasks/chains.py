r"""Chains of modular arithmetic: a task with worked steps that a tiny model can learn.

``7 a+5 b-3`` is evaluated from left to right modulo 10, one solution step per operation, the answer boxed::

    7a+5=2
    2b-3=9
    \boxed{9}

The letters name the operations: finding the next one by counting is harder for a small model than the
arithmetic. A teacher who skips steps writes ``7a+5b-3=9`` at once.

The difficulty (``Instance.level``) is the number of operations. This module has the problems and the
*student* whose solutions the base model is trained on: it gets some facts wrong (``7+5=3``) most of the time
and continues from what it wrote. Files, tokenizers and models are handled elsewhere. Everything is drawn from
``random.Random`` seeded with text, hence the same on every machine. Pure Python; the task is this project's
own.
"""

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from string import ascii_lowercase

from seele.records import Instance

DATA_SOURCE = "chains"

Fact = tuple[int, str, int]
"""Left operand, operation, right operand."""

Operations = Sequence[tuple[str, int]]
"""Operations and their right operands, in order."""

_EVALUATE = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}

# One letter per operation.
_LEVELS = range(1, len(ascii_lowercase) + 1)

# Drawing from a level whose questions are nearly used up would take forever.
_MAX_SHARE_OF_QUESTIONS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainsConfig:
    """Settings of the problems: which chains, and how many of them in each split."""

    seed: int = 0
    """Seed of everything that is drawn."""

    modulus: int = 10
    """Values lie in 0 .. modulus - 1; from 3 to 10, so that each is one digit."""

    operations: str = "+-"
    """The operations that occur, out of ``+``, ``-`` and ``*``."""

    train_levels: tuple[int, ...] = (6, 7)
    """Numbers of operations in the splits ``train`` and ``heldout``, each equally often."""

    harder_levels: tuple[int, ...] = (8, 9, 10)
    """Numbers of operations in the split ``harder``; none of them a training level."""

    num_train: int = 512
    num_heldout: int = 256
    num_harder: int = 128

    operations_per_step: int = 1
    """Operations per step of the worked solutions, 1 or 2; if the number of operations is odd, the first has
    a step of its own. The problems do not depend on it.
    """

    answer_values: int = 1
    """Number of values in the answer: the last one, the one two operations before, and so on. A guess is
    correct with probability modulus ** -answer_values.
    """

    def __post_init__(self) -> None:
        if self.operations_per_step not in (1, 2):
            raise ValueError(f"operations_per_step must be 1 or 2, got {self.operations_per_step}")
        if self.answer_values < 1:
            raise ValueError(f"answer_values must be >= 1, got {self.answer_values}")
        if not 3 <= self.modulus <= 10:
            raise ValueError(f"modulus must be from 3 to 10 (one digit per value), got {self.modulus}")
        if not self.operations or len(set(self.operations) & set(_EVALUATE)) != len(self.operations):
            raise ValueError(f"operations must be distinct, from '+-*', got {self.operations!r}")
        for name in ("train_levels", "harder_levels"):
            levels = getattr(self, name)
            if not levels or len(set(levels)) != len(levels) or not set(levels) <= set(_LEVELS):
                raise ValueError(
                    f"{name} must be distinct numbers from {_LEVELS[0]} to {_LEVELS[-1]}, got {levels}"
                )
        if shared := sorted(set(self.train_levels) & set(self.harder_levels)):
            raise ValueError(f"harder_levels must not be training levels, but {shared} are both")
        for name in ("num_train", "num_heldout", "num_harder"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        self._check_that_questions_suffice()

    def _check_that_questions_suffice(self) -> None:
        choices = sum(len(right_operands(operation, self.modulus)) for operation in self.operations)
        for levels, needed in (
            (self.train_levels, self.num_train + self.num_heldout),
            (self.harder_levels, self.num_harder),
        ):
            allowed = int(_MAX_SHARE_OF_QUESTIONS * self.modulus * choices ** min(levels))
            if (at_level := math.ceil(needed / len(levels))) > allowed:
                raise ValueError(
                    f"level {min(levels)} has too few different questions for {at_level} problems "
                    f"(at most {allowed}); lower the counts or raise the level"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentConfig:
    """The student that writes the base model's training text.

    A misconceived fact comes out wrong in one fixed way with probability ``believed``, right with
    ``doubted``, and as any value otherwise; every other fact comes out right, apart from slips.
    """

    seed: int = 0
    misconceived: float = 0.36
    """Share of the facts of each operation that the student gets wrong."""
    believed: float = 0.62
    doubted: float = 0.3
    slip: float = 0.06
    """Probability of any value instead of the right one on a fact that the student knows."""

    skipping: float = 0.0
    """Share of the solutions that begin with two operations per step, like a teacher who skips steps."""
    returning: float = 0.25
    """Probability, after each such step, that the solution continues with one operation per step."""
    skipping_slip: float = 0.5
    """Probability of any value at the end of such a step, whatever the student recalled on the way."""

    def __post_init__(self) -> None:
        for name in (
            "misconceived",
            "believed",
            "doubted",
            "slip",
            "skipping",
            "returning",
            "skipping_slip",
        ):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.believed + self.doubted > 1.0:
            raise ValueError(f"believed + doubted must be <= 1, got {self.believed} + {self.doubted}")


@dataclass(frozen=True, slots=True)
class Chain:
    """A start value and the operations applied to it, in order."""

    start: int
    operations: tuple[tuple[str, int], ...]

    @property
    def question(self) -> str:
        labelled = zip(ascii_lowercase, self.operations, strict=False)
        return f"{self.start} " + " ".join(f"{label}{sign}{operand}" for label, (sign, operand) in labelled)


def right_operands(operation: str, modulus: int) -> tuple[int, ...]:
    """Return the right operands for which the operation maps different left operands to different values.

    No operation then hides an earlier mistake: two mistakes may cancel, but one always shows. Operands that
    leave the value unchanged are excluded.
    """
    if operation == "*":
        return tuple(b for b in range(2, modulus) if math.gcd(b, modulus) == 1)
    return tuple(range(1, modulus))


def evaluate(fact: Fact, modulus: int) -> int:
    """Return the value of ``a operation b`` modulo ``modulus``."""
    left, operation, right = fact
    return int(_EVALUATE[operation](left, right)) % modulus


def misconceptions(config: ChainsConfig, student: StudentConfig) -> dict[Fact, int]:
    """Return the facts that the student gets wrong, each with the value it believes.

    It always overshoots, by 1 or 2: mistakes in sums and differences add up and rarely cancel, so that a
    correct answer almost always means correct steps.
    """
    rng = random.Random(f"chains/misconceptions/{student.seed}")
    believed: dict[Fact, int] = {}
    for operation in config.operations:
        facts = [
            (left, operation, right)
            for left in range(config.modulus)
            for right in right_operands(operation, config.modulus)
        ]
        for fact in rng.sample(facts, round(student.misconceived * len(facts))):
            believed[fact] = (evaluate(fact, config.modulus) + rng.choice((1, 2))) % config.modulus
    return believed


def generate_splits(config: ChainsConfig) -> dict[str, list[Instance]]:
    """Return the problems of ``train``, ``heldout`` (same levels) and ``harder``; all questions differ."""
    taken: set[str] = set()
    splits: dict[str, list[Instance]] = {}
    for split, levels, count in (
        ("train", config.train_levels, config.num_train),
        ("heldout", config.train_levels, config.num_heldout),
        ("harder", config.harder_levels, config.num_harder),
    ):
        rng = random.Random(f"chains/{split}/{config.seed}")
        instances: list[Instance] = []
        while len(instances) < count:
            chain = _draw(config, levels[len(instances) % len(levels)], rng)
            if chain.question not in taken:
                taken.add(chain.question)
                instances.append(_instance(config, chain))
        splits[split] = instances
    return splits


def student_solutions(
    config: ChainsConfig, student: StudentConfig, *, levels: Iterable[int]
) -> Iterator[tuple[str, str]]:
    """Yield one question for each of ``levels``, in their order, with the student's solution.

    The questions of ``heldout`` and ``harder`` do not occur.
    """
    splits = generate_splits(config)
    kept_apart = {instance.question for split in ("heldout", "harder") for instance in splits[split]}
    believed = misconceptions(config, student)
    rng = random.Random(f"chains/student/{student.seed}")
    for level in levels:
        chain = _draw(config, level, rng)
        while chain.question in kept_apart:
            chain = _draw(config, level, rng)
        sizes = _draw_sizes(level, student, rng)

        def work_step(value: int, operations: Operations) -> int:
            for operation, operand in operations:
                value = _recall((value, operation, operand), config.modulus, student, believed, rng)
            slips = len(operations) > 1 and rng.random() < student.skipping_slip
            return rng.randrange(config.modulus) if slips else value

        steps, _ = _write_steps(chain, sizes, work_step, answer_values=config.answer_values)
        yield chain.question, "".join(steps)


def _draw(config: ChainsConfig, level: int, rng: random.Random) -> Chain:
    operations = []
    for _ in range(level):
        operation = rng.choice(config.operations)
        operations.append((operation, rng.choice(right_operands(operation, config.modulus))))
    return Chain(rng.randrange(config.modulus), tuple(operations))


def _recall(
    fact: Fact, modulus: int, student: StudentConfig, believed: dict[Fact, int], rng: random.Random
) -> int:
    chance = rng.random()
    if fact not in believed:
        return rng.randrange(modulus) if chance < student.slip else evaluate(fact, modulus)
    if chance < student.believed:
        return believed[fact]
    return evaluate(fact, modulus) if chance < student.believed + student.doubted else rng.randrange(modulus)


def _draw_sizes(level: int, student: StudentConfig, rng: random.Random) -> list[int]:
    """Draw the number of operations in each step of one of the student's solutions."""
    skips = student.skipping > 0.0 and rng.random() < student.skipping
    sizes = [1] * (level % 2) if skips else []
    while skips and sum(sizes) < level:
        sizes.append(2)
        skips = rng.random() >= student.returning
    return sizes + [1] * (level - sum(sizes))


def _write_steps(
    chain: Chain, sizes: Iterable[int], work_step: Callable[[int, Operations], int], *, answer_values: int
) -> tuple[tuple[str, ...], str]:
    """Return the solution in steps of ``sizes`` operations, and its answer; mistakes are carried forward."""
    steps: list[str] = []
    value, labelled = chain.start, list(zip(ascii_lowercase, chain.operations, strict=False))
    # Operations left -> value.
    written_values: dict[int, int] = {}
    for size in sizes:
        step, labelled = labelled[:size], labelled[size:]
        written = "".join(f"{label}{operation}{operand}" for label, (operation, operand) in step)
        before, value = value, work_step(value, [operation for _, operation in step])
        written_values[len(labelled)] = value
        steps.append(f"{before}{written}={value}\n")
    values = [written_values.get(2 * place) for place in reversed(range(answer_values))]
    answer = "".join(str(value) for value in values if value is not None)
    # The box belongs to the last step, which no hint reveals.
    return (*steps[:-1], f"{steps[-1]}\\boxed{{{answer}}}"), answer


def _instance(config: ChainsConfig, chain: Chain) -> Instance:
    def work_step(value: int, operations: Operations) -> int:
        return reduce(lambda left, right: evaluate((left, *right), config.modulus), operations, value)

    per_step, level = config.operations_per_step, len(chain.operations)
    sizes = [1] * (level % per_step) + [per_step] * (level // per_step)
    steps, answer = _write_steps(chain, sizes, work_step, answer_values=config.answer_values)
    # The same question has another answer under another modulus.
    digest = hashlib.sha256(f"{config.modulus}:{chain.question}".encode()).hexdigest()
    return Instance(
        instance_id=f"{DATA_SOURCE}-{digest[:16]}",
        data_source=DATA_SOURCE,
        question=chain.question,
        steps=steps,
        answer=answer,
        level=level,
    )
