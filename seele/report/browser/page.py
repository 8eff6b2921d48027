"""A report's page of rollouts: a few steps of a run, in one self-contained file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from seele.data.storage.schema import read_solutions
from seele.records import AccuracyCurve
from seele.report.browser.colours import coloured
from seele.report.browser.drawings import draw_curve, draw_timeline
from seele.report.browser.rollouts import read_step, with_tokens
from seele.report.page import render_template
from seele.report.run_folder import Metrics, rollout_files
from seele.report.series import spread_evenly

NUM_STEPS, NUM_PROBLEMS = 5, 12


def rollouts_page(
    run: Path,
    *,
    name: str,
    metrics: Sequence[Metrics],
    validation_files: Sequence[str] = (),
    train_files: Sequence[Path] = (),
    curves: Mapping[str, AccuracyCurve],
    target_accuracy: float | None,
) -> str | None:
    """The page's HTML: NUM_STEPS steps from the first to the last, with NUM_PROBLEMS problems each.

    None if the run has no rollouts.

    Args:
        run: The run folder.
        name: Name of the run.
        metrics: Its logged steps.
        validation_files: As in ``RunFolder``: the order of the validation splits.
        train_files: Its training files, for the worked solutions.
        curves: The controller's curves, by problem.
        target_accuracy: Accuracy that the controller aims at.
    """
    files = rollout_files(run)
    if not files:
        return None
    steps = {
        step: [with_tokens(files[step], each) for each in spread_evenly(read_step(files[step]), NUM_PROBLEMS)]
        for step in spread_evenly(sorted(files), NUM_STEPS)
    }
    names = {each.first.instance_id for problems in steps.values() for each in problems}
    return render_template(
        "browser/static.html",
        heading=name,
        timeline=draw_timeline(metrics, files=validation_files),
        steps=steps,
        solutions=read_solutions(train_files, names),
        fitted={name: draw_curve(curves[name]) for name in names & curves.keys()},
        target_accuracy=target_accuracy,
        coloured=coloured,
    )
