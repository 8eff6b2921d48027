"""HTML pages from the templates of this package: a run's report, and a file's problems with their hints.

Every value that a template is given is escaped. Pages load nothing from elsewhere; figures are PNG files
beside the page. ``templates/report.html`` has the layout and wording of the report; its numbers come from
``build``, its figures from ``figures``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml

from seele.data.steps.hint_units import most_hint_steps
from seele.records import Instance
from seele.report.comparison.tables import amount, practice_cell, share
from seele.report.curves import aimed_accuracy
from seele.report.rollout_lines import ShownRollout
from seele.report.run_folder import RunFolder, ScoreLine
from seele.report.series import PRACTICE, by_step, practice

if TYPE_CHECKING:
    from jinja2 import Environment


def render_template(name: str, **values: Any) -> str:
    """The HTML of ``templates/NAME`` for these values."""
    return _environment().get_template(name).render(values)


@cache
def _environment() -> "Environment":
    # Commands that write no page should not wait for this import.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("seele.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["tenth"] = lambda share: max(0, min(10, round(10 * share)))
    environment.filters["words"] = lambda name: name.replace("_", " ")
    environment.filters["percent"] = lambda share: f"{100 * share:.0f} %"
    return environment


def choose_examples(rollouts: Sequence[ShownRollout], *, count: int) -> list[ShownRollout]:
    """Choose ``count`` rollouts of different problems: correct and wrong in turn, from short to long hints.

    Only the policy's rollouts are chosen. Deterministic: the same rollouts give the same examples.
    """
    chosen: list[ShownRollout] = []
    shown: set[str] = set()
    by_verdict = {
        is_correct: sorted(
            (each for each in rollouts if each.is_correct is is_correct and not each.is_given),
            key=lambda rollout: (rollout.hint_ratio, rollout.instance_id, rollout.round),
        )
        for is_correct in (True, False)
    }
    for index in range(count):
        # Alternate, and take the other kind once one is used up.
        for is_correct in (index % 2 == 0, index % 2 == 1):
            pool = [rollout for rollout in by_verdict[is_correct] if rollout.instance_id not in shown]
            if pool:
                rollout = pool[round(index / max(1, count - 1) * (len(pool) - 1))]
                chosen.append(rollout)
                shown.add(rollout.instance_id)
                break
    return chosen


def problem_page(
    title: str, instances: Sequence[Instance], header: Sequence[str], rows: Iterable[Sequence[str]]
) -> str:
    """The page's HTML.

    Args:
        title: Heading, such as the file's name.
        instances: The problems to show.
        header: Columns of the table of statistics; the first two hold text.
        rows: Rows of that table.
    """
    return render_template(
        "problems.html",
        heading=title,
        header=header,
        rows=rows,
        problems=instances,
        hint_lines=hint_lines,
        tier_lines=tier_lines,
    )


def hint_lines(instance: Instance) -> Iterator[tuple[float | None, str, bool]]:
    """Yield each step's hint ratio (None if no hint may end with it), its text, and whether hints from there
    on state the answer. The empty hint comes first. Tiers do not count: see ``tier_lines``.
    """
    by_steps = replace(instance, tiers=(), longest_hint=most_hint_steps(instance.steps))
    ratios = {by_steps.num_hint_steps(ratio): ratio for ratio in by_steps.legal_hint_ratios}
    yield 0.0, "", False
    for number, step in enumerate(instance.steps, start=1):
        is_revealing = instance.revealed_at is not None and number >= instance.revealed_at
        yield ratios.get(number), step, is_revealing


def tier_lines(instance: Instance) -> Iterator[tuple[float, str]]:
    """Yield the hint ratio of each tier, which ``seele.hints.kind=tiers`` shows by itself, and its text."""
    for number, tier in enumerate(instance.tiers, start=1):
        yield number / instance.num_hint_units, tier


NUM_EXAMPLES = 6

# Rollouts may be thousands of tokens long; the page shows the beginning and the end of a long text.
MAX_SHOWN_CHARS = 3000


def render_page(run: RunFolder, summary: Mapping[str, Any], figures: Collection[str]) -> str:
    """The page's HTML.

    Args:
        run: Contents of the run folder.
        summary: ``summarise(run)``.
        figures: Names of the figures that exist as ``NAME.png`` beside the page.
    """
    is_hinted = any(by_step(run.metrics, "hint_ratio/mean").y)
    return render_template(
        "report.html",
        heading=run.name,
        run=run,
        figures=figures,
        tiles=_tiles(summary, is_hinted=is_hinted),
        is_hinted=is_hinted,
        has_target=aimed_accuracy(run) is not None,
        rewards=_rewards(run),
        practised=_practised(run),
        accuracies=_accuracies(summary),
        scores=[_score_cells(score) for score in run.scores],
        last_third=_last_third(summary),
        examples=choose_examples(run.rollouts, count=NUM_EXAMPLES),
        card=[(key, _inline(value)) for key, value in run.card.items()],
        clipped=_clipped,
        yaml=_yaml,
    )


def _tiles(summary: Mapping[str, Any], *, is_hinted: bool) -> list[tuple[str, str]]:
    """The numbers that a reader looks for first, with their labels."""
    tiles = []
    for name, split in summary["unhinted_accuracy"].items():
        ends = {split[end]["step"]: share(split[end]["accuracy"]) for end in ("first", "last")}
        tiles.append((" → ".join(ends.values()), f"{name}, no hint"))
    last_third = summary["last_third"] or {}
    if (late := last_third.get("accuracy_of_rounds_2_and_later")) is not None:
        last_round = len(last_third["accuracy_by_round"])
        rounds = "round 2" if last_round == 2 else f"rounds 2 to {last_round}"
        tiles.append((share(late), f"mean accuracy of {rounds}, last third of the steps"))
    if is_hinted:
        hints = summary["hint_ratio"]
        tiles.append((f"{share(hints['first'])} → {share(hints['last'])}", "mean hint ratio"))
    tokens = summary["tokens"]
    tiles.append((amount(tokens["generated"]), "generated tokens"))
    tiles.append((amount(tokens["trained"]), "trained tokens"))
    if "trained_packed" in tokens:
        tiles.append((amount(tokens["trained_packed"]), "trained, packed"))
    if seconds := summary["seconds"]["steps"]:
        tiles.append((_duration(seconds), "in training steps"))
    steps = summary["last_step"]
    tiles.append(("none" if steps is None else str(steps), "steps logged"))
    return tiles


def _accuracies(summary: Mapping[str, Any]) -> list[list[str]]:
    """A row for each validation split."""
    return [
        [
            name,
            *(
                f"{share(split[when]['accuracy'])} (step {split[when]['step']})"
                for when in ("first", "last", "best")
            ),
        ]
        for name, split in summary["unhinted_accuracy"].items()
    ]


def _rewards(run: RunFolder) -> list[tuple[str, str, str]]:
    """Name, last value and its step of each metric of rewards, a reward function's own numbers among them."""
    names = sorted({key for row in run.metrics for key in row if key.startswith("reward/")})
    series = {name: by_step(run.metrics, name) for name in names}
    return [(name, f"{each.y[-1]:.4g}", f"{each.x[-1]:.0f}") for name, each in series.items()]


def _practised(run: RunFolder) -> list[tuple[str, ...]]:
    """A row for each metric of what is practised under hints: title, first and last value, and the mean over
    the last third of the steps; only those that the run has.
    """
    late = practice(run.metrics)
    series = {name: each for name in PRACTICE if (each := by_step(run.metrics, name))}
    return [
        (
            PRACTICE[name],
            *(f"{practice_cell(name, each.y[end])} (step {each.x[end]:.0f})" for end in (0, -1)),
            practice_cell(name, late.get(name)),
        )
        for name, each in series.items()
    ]


def _last_third(summary: Mapping[str, Any]) -> dict[str, str]:
    """Mean accuracy by round; empty if no round was logged."""
    last_third = summary["last_third"]
    if last_third is None:
        return {}
    rounds = enumerate(last_third["accuracy_by_round"], start=1)
    return {
        f"from step {last_third['first_step']}": "mean accuracy",
        **{f"round {number}": "-" if mean is None else share(mean) for number, mean in rounds},
    }


def _score_cells(score: ScoreLine) -> tuple[str, ...]:
    low, high = score.interval_95
    return (
        score.benchmark,
        "greedy" if score.temperature == 0 else f"T = {score.temperature:g}, {score.samples} samples",
        str(score.problems),
        share(score.accuracy),
        f"{share(low)} to {share(high)}",
        f"{score.mean_response_tokens:.1f}",
        share(score.truncated_share),
        "-" if score.no_answer_share is None else share(score.no_answer_share),
    )


def _clipped(text: str) -> str:
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    half = MAX_SHOWN_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _inline(value: Any) -> str:
    """A value of the run card in a few words: nested keys become ``key: value`` parts."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_inline(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(_inline(part) for part in value)
    # JSON has sums of floats, such as tokens, with a fraction; larger numbers are shown with an exponent.
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        value = int(value)
    return (
        f"{value:,}"
        if isinstance(value, int) and abs(value) >= 10_000 and not isinstance(value, bool)
        else str(value)
    )


def _yaml(value: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
    return text


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 120:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min" if minutes >= 3 else f"{seconds:.0f} s"
