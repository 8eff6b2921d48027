"""A report's page of rollouts: a few steps of a run, in one self-contained file."""

from collections.abc import Sequence
from pathlib import Path

from seele.data.storage.schema import read_solutions
from seele.report.browser.colours import coloured
from seele.report.browser.drawings import draw_curve, draw_timeline
from seele.report.browser.rollouts import (
    ShownProblem,
    group_rollouts,
    read_step,
    with_tokens,
    without_middles,
)
from seele.report.curves import aimed_accuracy, saved_controller
from seele.report.page import render_template
from seele.report.run_folder import RunFolder, rollout_files
from seele.report.series import spread_evenly

NUM_STEPS, NUM_PROBLEMS = 5, 12
MAX_TOKENS = 20_000
"""Tokens of a step that may have colours. A coloured token takes about 50 bytes of the page."""
MAX_CHARS = 4_000
"""Characters of a response without colours."""


def rollouts_page(folder: Path, run: RunFolder) -> str | None:
    """The page's HTML: NUM_STEPS steps from the first to the last, with NUM_PROBLEMS problems each.

    Problems beyond MAX_TOKENS are shown without the colours of their tokens, and without the middle of
    responses beyond MAX_CHARS. None if the run has no rollouts.

    Args:
        folder: The run folder.
        run: What it contains.
    """
    files = rollout_files(folder)
    if not files:
        return None
    steps = {}
    for step in spread_evenly(sorted(files), NUM_STEPS):
        problems = group_rollouts(run.rollouts) if step == run.rollouts_step else read_step(files[step])
        steps[step] = _coloured_problems(files[step], spread_evenly(problems, NUM_PROBLEMS))
    controller = saved_controller(run)
    names = {each.first.instance_id for problems in steps.values() for each in problems}
    return render_template(
        "browser/static.html",
        heading=run.name,
        timeline=draw_timeline(run.metrics, files=run.validation_files),
        steps=steps,
        solutions=read_solutions(run.train_files, names),
        fitted={each.instance_id: draw_curve(each) for each in controller.curves(names)}
        if controller
        else {},
        target_accuracy=aimed_accuracy(run),
        hint_request=run.hint_request,
        coloured=coloured,
        num_plain=sum(_num_tokens(each) == 0 and each.has_tokens for page in steps.values() for each in page),
        max_tokens=MAX_TOKENS,
    )


def _coloured_problems(file: Path, problems: Sequence[ShownProblem]) -> list[ShownProblem]:
    """Return the problems of a step, with their tokens as long as these are MAX_TOKENS at most, and without
    the middle of long responses.
    """
    shown, left = [], MAX_TOKENS
    for problem in problems:
        whole = with_tokens(file, problem)
        num_tokens = _num_tokens(whole)
        shown.append(without_middles(whole if num_tokens <= left else problem, MAX_CHARS))
        left -= num_tokens if num_tokens <= left else 0
    return shown


def _num_tokens(problem: ShownProblem) -> int:
    return sum(len(rollout.tokens) for rollout in (*problem.rollouts, *problem.given))
