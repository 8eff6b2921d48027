"""Worked solutions in a model's own words: ``python -m seele_eval.own_solutions FILE --model M --out OUT``.

Each problem of FILE is sampled without a hint; if no sample is right, after one step of its worked solution,
then after two, and so on. The hint and the first right response to it become the problem's solution, cut into
steps again. Most of a solution is thus the model's own, as in PrefixRL's training (arXiv:2601.18795), and
hints say what the model might have said.

OUT holds all problems and columns, and the column ``own_share``: the share of the solution's characters that
the model wrote, or 0 if no response was right and the solution is unchanged. ``seele_eval.hint_search``
describes how the command searches and resumes.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from seele.data.own_solutions import continued
from seele.data.steps.hint_units import most_hint_steps
from seele.data.storage.files import check_output
from seele.data.storage.schema import content_id, read_problems, rewrite_problems
from seele.records import Instance
from seele_eval.arguments import parse_sampling
from seele_eval.command import exit_quietly, run_command
from seele_eval.hint_search import Hints, Tried, parser_of, search, solved
from seele_eval.problems import number_twins
from seele_eval.prompts import Complete, Request

OWN_SHARE = "own_share"
"""The column added to OUT."""


def own_solution(instance: Instance, tried: Tried) -> tuple[Instance, float]:
    """The problem with a right response as its solution, and the share of it that the model wrote."""
    assert tried.text is not None
    steps = continued(instance.steps[: tried.hint_steps], tried.text)
    own = replace(
        instance,
        instance_id=content_id(instance.data_source, instance.question, steps, instance.answer),
        steps=steps,
        revealed_at=None,
        milestones=None,
    )
    return own, len(tried.text) / len("".join(steps))


def sample(options: argparse.Namespace, *, complete: Complete | None = None) -> str:
    """Draw the missing samples, write the file, and return a summary of it.

    Args:
        options: The result of ``parse``.
        complete: As for ``seele_eval.hint_search.search``.

    Raises:
        SeeleError: For anything that the user can fix.
    """
    check_output(options.file, options.out)
    problems = read_problems(options.file)
    hints = Hints(longest=lambda instance: most_hint_steps(instance.steps), give=_go_on_from_hint)
    return _write(
        options.file, options.out, problems, solved(search(options, problems, hints, complete=complete))
    )


def _go_on_from_hint(request: Request, instance: Instance, hint_steps: int) -> Request:
    return replace(request, steps=instance.steps, hint_steps=hint_steps)


def _write(source: Path, out: Path, problems: Sequence[Instance], right: dict[str, Tried]) -> str:
    own = [
        own_solution(each, right[each.instance_id]) if each.instance_id in right else (each, 0.0)
        for each in problems
    ]
    numbered = number_twins(instance for instance, _ in own)
    rewrite_problems(
        source,
        out,
        [*enumerate(numbered)],
        split=out.stem,
        column=(pa.field(OWN_SHARE, pa.float64()), [share for _, share in own]),
    )
    unhinted = sum(not each.hint_steps for each in right.values())
    mean = sum(share for _, share in own) / len(own)
    return (
        f"{out}: {len(own)} problems, {len(right)} with the model's own solution, {unhinted} of them "
        f"without a hint; on average {mean:.1%} of a solution is the model's\n"
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    about = "Worked solutions in a model's own words."
    return parse_sampling(parser_of("seele_eval.own_solutions", about, samples=4), arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""
    return run_command(lambda: sample(parse(arguments)))


if __name__ == "__main__":
    exit_quietly(main())
