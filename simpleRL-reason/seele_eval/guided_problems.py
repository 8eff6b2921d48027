"""Guided copies of problems (POPE): ``python -m seele_eval.guided_problems FILE --model M --out OUT``.

Each problem of FILE is sampled without a hint; if no sample is right, with the first step of its worked
solution in the user's turn, then with two, and so on, up to a share of the solution's characters. The
shortest hint that has a right sample goes into a copy of the problem, whose question asks the model to build
upon the hint and continue from it (arXiv:2601.18779). If no hint has one, the longest goes there, as a
summary of the paper says.

OUT holds all problems unchanged, each followed by its guided copy, which has the same further columns, and
the column ``guided_by``: the number of steps in the question, 0 for the original. ``seele_eval.hint_search``
describes how the command searches, and how it resumes after a kill.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from seele.data.steps.hint_units import most_hint_steps
from seele.data.storage.files import check_output
from seele.data.storage.schema import GUIDED_BY, content_id, read_problems, rewrite_problems
from seele.records import Instance
from seele.reward.milestones import milestones_of, num_shown
from seele.rollout.templates import HINT, QUESTION, ask_with_hint
from seele_eval.arguments import parse_sampling, share
from seele_eval.command import exit_quietly, run_command
from seele_eval.hint_search import Hints, Tried, parser_of, search, solved
from seele_eval.prompts import Complete, Request

LONGEST = 0.25
"""Share of a solution's characters in the longest hint, as in summaries of the paper."""

REQUEST = (
    f"{QUESTION}\n\nHere is how a correct solution begins:\n{HINT}\n\n"
    "Build upon this beginning: go on from where it ends, and finish the solution."
)
"""The question of a guided copy, in our words."""


def steps_within(steps: Sequence[str], longest: float) -> int:
    """Number of leading steps with at most the share ``longest`` of the solution's characters; never all."""
    ends = [*accumulate(map(len, steps))]
    return sum(end <= longest * ends[-1] for end in ends[:-1])


def guided_copy(instance: Instance, hint_steps: int, request: str) -> Instance:
    """The problem with this many steps of its solution in its question, under an id of its own and with the
    milestones that lie ahead.
    """
    hint = "".join(instance.steps[:hint_steps])  # also where the file has tiers
    question = ask_with_hint(request, instance.question, hint)
    copy_id = content_id(instance.data_source, question, instance.steps, instance.answer)
    milestones = milestones_of(instance)
    ahead = milestones[num_shown(milestones, len(hint)) :]
    return replace(instance, instance_id=copy_id, question=question, milestones=ahead)


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

    def longest(instance: Instance) -> int:
        return min(steps_within(instance.steps, options.longest), most_hint_steps(instance.steps))

    def give(request: Request, instance: Instance, hint_steps: int) -> Request:
        if not hint_steps:
            return request
        return replace(request, question=guided_copy(instance, hint_steps, options.request).question)

    hints = Hints(
        longest=longest, give=give, conditions={"request": options.request, "longest": options.longest}
    )
    right = solved(search(options, problems, hints, complete=complete))
    # A hint without a right sample may still get one in training, which comes back to it.
    guides = [
        right[each.instance_id].hint_steps if each.instance_id in right else longest(each)
        for each in problems
    ]
    _write(options.file, options.out, problems, guides, options.request)
    return _say(options, problems, guides, right)


def _write(
    source: Path, out: Path, problems: Sequence[Instance], guides: Sequence[int], request: str
) -> None:
    rows: list[tuple[int, Instance, int]] = []
    for row, (instance, hint_steps) in enumerate(zip(problems, guides, strict=True)):
        rows.append((row, instance, 0))
        if hint_steps:
            rows.append((row, guided_copy(instance, hint_steps, request), hint_steps))
    rewrite_problems(
        source,
        out,
        [(row, instance) for row, instance, _ in rows],
        split=out.stem,
        column=(pa.field(GUIDED_BY, pa.int64()), [hint_steps for *_, hint_steps in rows]),
    )


def _say(
    options: argparse.Namespace,
    problems: Sequence[Instance],
    guides: Sequence[int],
    right: Mapping[str, Tried],
) -> str:
    # The keys say whether a problem was solved and whether it has a guided copy.
    count = Counter(
        (each.instance_id in right, steps > 0) for each, steps in zip(problems, guides, strict=True)
    )
    whole = sum(len(each.steps) < 2 and each.instance_id not in right for each in problems)
    return (
        f"{options.out}: {len(problems)} problems, {count[True, True] + count[False, True]} of them with a "
        f"guided copy ({count[True, True]} with the shortest hint that had a right sample, "
        f"{count[False, True]} with the longest, as none had); without one, {count[True, False]} solved "
        f"without a hint, {whole} without a solution of several steps, and {count[False, False] - whole} "
        f"whose first step is more than {options.longest:.0%} of the solution\n"
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line.

    Raises:
        ConfigError: As ``seele_eval.arguments.parse_sampling``.
    """
    parser = parser_of(
        "seele_eval.guided_problems", "Guided copies of problems that a model does not solve.", samples=8
    )
    parser.add_argument(
        "--longest",
        type=share,
        default=LONGEST,
        help="share of the solution's characters in the longest hint; default %(default)s",
    )
    parser.add_argument(
        "--request",
        type=_request,
        default=REQUEST,
        help=f"question of a guided copy, with {QUESTION} and {HINT} in it; default {REQUEST!r}",
    )
    return parse_sampling(parser, arguments)


def _request(text: str) -> str:
    if text.count(HINT) != 1 or QUESTION not in text:
        raise argparse.ArgumentTypeError(f"must contain {QUESTION}, and {HINT} exactly once, got {text!r}")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""
    return run_command(lambda: sample(parse(arguments)))


if __name__ == "__main__":
    exit_quietly(main())
