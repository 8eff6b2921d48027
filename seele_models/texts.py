"""The text that a base model is trained on, by task. A new task is one entry here and one in ``RECIPES``.

GSM8K's solutions are joined by calculations in their manner, with other numbers.
"""

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from seele.data.storage.schema import read_problems
from seele.data.tasks import chains
from seele.data.tasks.gsm8k import read_gsm8k
from seele.errors import DataError
from seele_models.recipes import BaseModelRecipe

# "48/2 = 24": the numbers and operators of a calculation, and the way it is spaced.
CALCULATION = re.compile(r"(\d{1,3})( ?)([-+*x/])( ?)(\d{1,2})( ?= ?)\d+")
CALCULATIONS_PER_DRILL = 30


def drills(solutions: Sequence[str], count: int, rng: random.Random) -> Iterator[str]:
    """``count`` texts of 30 calculations each, whose forms are drawn from those of the solutions.

    Raises:
        DataError: If no solution has a calculation.
    """
    found = [match for solution in solutions for match in CALCULATION.finditer(solution)]
    if count and not found:
        raise DataError(
            "no solution has a calculation such as 48/2=24, whose form drills take; use other data"
        )
    for _ in range(count):
        yield "".join(f"{_drill(rng.choice(found), rng)}\n" for _ in range(CALCULATIONS_PER_DRILL))


def _drill(found: re.Match[str], rng: random.Random) -> str:
    """A calculation of the same form with numbers of the same length, none negative and none broken."""
    left, right = (rng.randrange(10 ** (len(found[group]) - 1), 10 ** len(found[group])) for group in (1, 5))
    match found[3]:
        case "+":
            result = left + right
        case "-":
            left, right = max(left, right), min(left, right)
            result = left - right
        case "/":
            result = max(1, left // right)
            left = result * right
        case _:
            result = left * right
    return f"{left}{found[2]}{found[3]}{found[4]}{right}{found[6]}{result}"


Text = tuple[str, str]
"""Question or prompt, and solution without the end-of-text token."""


def _chains_texts(recipe: BaseModelRecipe) -> Iterator[Text]:
    return chains.student_solutions(recipe.chains, recipe.student, levels=_lesson_plan(recipe))


def _lesson_plan(recipe: BaseModelRecipe) -> list[int]:
    """The level of each text: one level a batch, drawn from more and more of the levels.

    On short chains the model finds the table of facts; the rest of the training is about where in a long
    chain it stands, hence the longer of two drawn levels.
    """
    rng = random.Random(f"lessons/{recipe.seed}")
    plan: list[int] = []
    for batch in range(1, recipe.student_batches + 1):
        progress = min(1.0, batch / (recipe.share_of_easy_batches * recipe.student_batches))
        open_levels = recipe.student_levels[: math.ceil(progress * len(recipe.student_levels))]
        plan += [max(rng.choices(open_levels, k=2))] * recipe.batch_size
    return plan


def _gsm8k_texts(recipe: BaseModelRecipe) -> Iterator[Text]:
    folder = Path(recipe.data_folder) if recipe.data_folder else None
    instances = read_gsm8k("train", folder=folder, max_chars=recipe.max_chars)
    for instance in instances:
        if len(instance.steps) >= recipe.min_steps:
            yield instance.question, "".join(instance.steps)
    rng = random.Random(f"drills/{recipe.seed}")
    for text in drills(["".join(instance.steps) for instance in instances], recipe.drills, rng):
        yield "", text


def _problems_texts(recipe: BaseModelRecipe) -> Iterator[Text]:
    """Worked solutions of a file in our schema, or the boxed answer alone where there is none."""
    for instance in read_problems(Path(recipe.data_folder) / "train.parquet"):
        yield instance.question, "".join(instance.steps) or f"\\boxed{{{instance.answer}}}"


TEXTS: dict[str, Callable[[BaseModelRecipe], Iterator[Text]]] = {
    "chains": _chains_texts,
    "gsm8k": _gsm8k_texts,
    "problems": _problems_texts,
}
