"""Compare our evaluation with lm-evaluation-harness: ``python -m seele_eval.harness OUT SAMPLES.jsonl...``.

OUT is an output folder of ``seele_eval.run``; the samples are what ``lm_eval --log_samples`` wrote for the
tasks in ``simpleRL-reason/lm_eval_tasks``. Samples are paired by their whole prompt, so paired prompts
are equal; equal responses must then have equal verdicts. docs/evaluation.md has the recipe.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seele.data.storage.files import read_json_lines
from seele.errors import ConfigError, DataError
from seele.rollout.templates import QUESTION
from seele_eval.command import run_command
from seele_eval.predictions import Prediction, read_predictions
from seele_eval.tables import table


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One sample of the harness."""

    prompt: str
    text: str
    correct: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of the two on the samples of one file."""

    name: str
    theirs: int
    """Number of the harness's samples."""
    paired: int
    """Number of prompts that both have."""
    same_texts: int
    """Number of equal responses to these prompts."""
    same_verdicts: int
    """Number of equal verdicts on equal texts."""
    our_accuracy: float
    their_accuracy: float
    disputed: tuple[tuple[Prediction, Logged], ...]
    """Equal texts with different verdicts."""


def read_samples(path: Path) -> list[Logged]:
    """Read the samples from a file of ``lm_eval --log_samples``.

    Raises:
        DataError: If it is missing, empty, or holds anything else.
    """
    samples = []
    for at, row in read_json_lines(path):
        try:
            prompt, text = row["arguments"]["gen_args_0"]["arg_0"], row["resps"][0][0]
            samples.append(Logged(prompt=prompt, text=text, correct=row["exact_match"] == 1))
        except (KeyError, IndexError, TypeError) as error:
            raise DataError(
                f"{at}: expected a generated sample with exact_match, as lm_eval --log_samples writes it "
                f"({error!r})"
            ) from error
    if not samples:
        raise DataError(f"{path}: holds no samples")
    return samples


def agree(name: str, ours: dict[str, Prediction], theirs: Sequence[Logged]) -> Agreement:
    """Pair the samples of one file with ours by their prompts.

    Raises:
        DataError: If they share no prompt.
    """
    pairs = [(ours[logged.prompt], logged) for logged in theirs if logged.prompt in ours]
    if not pairs:
        raise DataError(
            f"{name}: none of its {len(theirs)} prompts is among our {len(ours)}; the first is "
            f"{theirs[0].prompt!r}, ours is {next(iter(ours), None)!r}"
        )
    same = [(prediction, logged) for prediction, logged in pairs if prediction.text == logged.text]
    disputed = tuple((ours, theirs) for ours, theirs in same if ours.correct != theirs.correct)
    return Agreement(
        name=name,
        theirs=len(theirs),
        paired=len(pairs),
        same_texts=len(same),
        same_verdicts=len(same) - len(disputed),
        our_accuracy=sum(prediction.correct for prediction, _ in pairs) / len(pairs),
        their_accuracy=sum(logged.correct for _, logged in pairs) / len(pairs),
        disputed=disputed,
    )


def greedy_by_prompt(out: Path) -> dict[str, Prediction]:
    """Our greedy samples by their whole prompt.

    Raises:
        CheckpointError: If the folder holds no predictions.
        ConfigError: If the file does not determine their prompts.
    """
    there = read_predictions(out)
    template = there.conditions.get("template_text")
    if template is None:
        raise ConfigError(
            f"{out}: its template is the tokenizer's; evaluate with a named one, such as r1_zero"
        )
    return {
        template.replace(QUESTION, prediction.question): prediction
        for prediction in there.predictions
        if prediction.temperature == 0
    }


def report(agreements: Sequence[Agreement]) -> str:
    """A table, and below it the texts with different verdicts."""
    rows = [
        {
            "file": each.name,
            "samples": str(each.theirs),
            "same prompt": str(each.paired),
            "same response": str(each.same_texts),
            "same verdict on it": str(each.same_verdicts),
            "ours %": f"{100 * each.our_accuracy:.1f}",
            "theirs %": f"{100 * each.their_accuracy:.1f}",
        }
        for each in agreements
    ]
    disputes = [
        f"- {ours.benchmark} {ours.instance_id}: {ours.extracted!r} against {ours.answer!r} is "
        f"{_verdict(ours.correct)} for us and {_verdict(theirs.correct)} for them\n"
        for each in agreements
        for ours, theirs in each.disputed
    ]
    return table(rows, num_names=1) + "".join(["\n", *disputes] if disputes else [])


def _verdict(correct: bool) -> str:
    return "right" if correct else "wrong"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(
        prog="seele_eval.harness", description="Compare with lm-evaluation-harness."
    )
    parser.add_argument("out", type=Path, help="output folder of seele_eval.run")
    parser.add_argument("samples", type=Path, nargs="+", help="samples_*.jsonl of lm_eval --log_samples")
    options = parser.parse_args(argv)

    def compare() -> str:
        ours = greedy_by_prompt(options.out)
        return report([agree(path.name, ours, read_samples(path)) for path in options.samples])

    return run_command(compare)


if __name__ == "__main__":
    raise SystemExit(main())
