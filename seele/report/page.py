"""The report as one HTML page; figures stand beside it as PNG files.

Layout and wording only. Numbers come from ``summary``, figures from ``figures``, markup from ``html_text``.
"""

from collections.abc import Collection, Mapping
from typing import Any

import yaml

from seele.report.comparison.tables import amount
from seele.report.examples import choose_examples
from seele.report.html_text import Markup, element, join, table
from seele.report.run_folder import RolloutLine, RunFolder, ScoreLine
from seele.report.stylesheet import CSS

NUM_EXAMPLES = 6

# Generations may be thousands of tokens long; the page shows the beginning and the end of such a text.
MAX_SHOWN_CHARS = 3000

CAPTIONS = {
    "accuracy": (
        "Accuracy without hints on each validation split, over all tokens generated for training so far, or "
        "over steps where none are. Grey: mean accuracy of the training rollouts, under the hints they saw."
    ),
    "rounds": (
        "Mean accuracy of each round's rollouts over the step's problems. The first round has the hint that "
        "earlier visits speak for, each later one what the rounds before it have shown. Dashed: what the "
        "controller aims at."
    ),
    "hints": (
        "How much of the worked solution is revealed, over the step's problems and rounds: mean, and the "
        "band between the 10 % and 90 % quantile."
    ),
    "curves": (
        "The controller's accuracy-hint curve of some problems, from easy to hard, as saved after step "
        "{controller_step}; dashed is the accuracy that it aims at. Points are rounds, with their number: "
        "those that the paper's controller fitted the curve to, otherwise those of step {rollouts_step}."
    ),
    "signal": (
        "What an update can learn from. a(1-a) is the variance of the reward within a round and bounds the "
        "possible progress; a round whose rollouts all agree carries none by itself."
    ),
    "phases": "Where the time goes: seconds of each phase of a step.",
}
ABSENT = {
    "accuracy": "No step was logged, so there is nothing to draw.",
    "rounds": "No round was logged.",
    "hints": "No hint was given in this run.",
    "curves": "No fitted curve was saved: the run has no checkpoint, or its controller fits none.",
    "signal": "The learning signal was not logged.",
    "phases": "No timings were logged.",
}


def render_page(run: RunFolder, summary: Mapping[str, Any], figures: Collection[str]) -> str:
    """The page's HTML.

    Args:
        run: What the run folder holds.
        summary: ``summarise(run)``.
        figures: Names of the figures that exist as ``NAME.png`` beside the page.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{run.name} - SEELE report"),
        element("style", Markup(CSS)),
    )
    body = element(
        "body",
        element("h1", run.name),
        _tiles(summary),
        _notes(run),
        _section("Accuracy without hints", _accuracy_table(summary), _figure("accuracy", figures)),
        _section("Evaluation after training", _evaluation(run)),
        _section("Accuracy per round", _last_third(summary), _figure("rounds", figures)),
        _section("Hints", _figure("hints", figures), _curves(run, figures)),
        _section("Learning signal", _figure("signal", figures)),
        _section("Time", _figure("phases", figures)),
        _section("Examples", _examples(run)),
        _section("Run card", _card(run)),
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _section(title: str, *content: Markup) -> Markup:
    return element("section", element("h2", title), *content)


def _figure(name: str, figures: Collection[str], **facts: int | None) -> Markup:
    if name not in figures:
        return element("p", ABSENT[name], class_="soft")
    image = element("img", src=f"{name}.png", alt=f"figure: {name}", loading="lazy")
    return element("figure", image, element("figcaption", CAPTIONS[name].format(**facts)))


def _curves(run: RunFolder, figures: Collection[str]) -> Markup:
    return _figure("curves", figures, controller_step=run.controller_step, rollouts_step=run.rollouts_step)


def _tiles(summary: Mapping[str, Any]) -> Markup:
    """The numbers that a reader looks for first."""
    tiles = [
        (f"{percent(split['first']['accuracy'])} → {percent(split['last']['accuracy'])}", f"{name}, no hint")
        for name, split in summary["unhinted_accuracy"].items()
    ]
    if (late := (summary["last_third"] or {}).get("accuracy_of_rounds_2_and_later")) is not None:
        tiles.append((percent(late), "rounds 2 and later, last third"))
    if hints := summary["hint_ratio"]:
        tiles.append((f"{percent(hints['first'])} → {percent(hints['last'])}", "mean hint ratio"))
    tiles.append((amount(summary["tokens"]["generated"]), "generated tokens"))
    if seconds := summary["seconds"]["steps"]:
        tiles.append((_duration(seconds), "in training steps"))
    steps = summary["last_step"]
    tiles.append(("none" if steps is None else str(steps), "steps logged"))
    return element(
        "div",
        *(
            element("div", element("b", value), element("span", label), class_="tile")
            for value, label in tiles
        ),
        class_="tiles",
    )


def _notes(run: RunFolder) -> Markup:
    if not run.notes:
        return Markup()
    return element("div", element("ul", *(element("li", note) for note in run.notes)), class_="notes")


def _accuracy_table(summary: Mapping[str, Any]) -> Markup:
    splits = summary["unhinted_accuracy"]
    if not splits:
        return element("p", "No validation was logged.", class_="soft")
    rows = [
        [
            name,
            *(
                f"{percent(split[when]['accuracy'])} (step {split[when]['step']})"
                for when in ("first", "last", "best")
            ),
        ]
        for name, split in splits.items()
    ]
    return table(["split", "first", "last", "best"], rows)


def _last_third(summary: Mapping[str, Any]) -> Markup:
    last_third = summary["last_third"]
    if last_third is None:
        return Markup()
    accuracies = last_third["accuracy_by_round"]
    header = [f"from step {last_third['first_step']}", *(f"round {i + 1}" for i in range(len(accuracies)))]
    return table(header, [["mean accuracy", *("-" if a is None else percent(a) for a in accuracies)]])


def _evaluation(run: RunFolder) -> Markup:
    if not run.scores:
        return element(
            "p", "The run was not evaluated; scripts/eval.sh merges a checkpoint and does.", class_="soft"
        )
    rows = [_score_cells(score) for score in run.scores]
    scores = table(list(rows[0]), [list(row.values()) for row in rows], numbers_from=2)
    return join([scores, _details("Conditions", _yaml(run.conditions))])


def _score_cells(score: ScoreLine) -> dict[str, str]:
    """Cells of the evaluation table by column."""
    low, high = score.interval_95
    return {
        "benchmark": score.benchmark,
        "decoding": "greedy"
        if score.temperature == 0
        else f"T = {score.temperature:g}, {score.samples} samples",
        "problems": str(score.problems),
        "accuracy": percent(score.accuracy),
        "95 % interval": f"{percent(low)} to {percent(high)}",
        "tokens": f"{score.mean_response_tokens:.1f}",
        "truncated": percent(score.truncated_share),
        "no answer": percent(score.no_answer_share),
    }


def _examples(run: RunFolder) -> Markup:
    examples = choose_examples(run.rollouts, count=NUM_EXAMPLES)
    if not examples:
        return element("p", "There are no rollouts to show.", class_="soft")
    intro = element(
        "p",
        f"Rollouts of step {run.rollouts_step}. ",
        element("mark", "Marked"),
        " text is the hint; what follows it was generated.",
        class_="soft",
    )
    return join([intro, *(_example(rollout) for rollout in examples)])


def _example(rollout: RolloutLine) -> Markup:
    is_correct = rollout.is_correct
    facts = [
        element(
            "span", f"reward {rollout.reward:g}, {rollout.reason}", class_="good" if is_correct else "bad"
        ),
        element("span", f"hint ratio {rollout.hint_ratio:.2f}"),
        element("span", f"round {rollout.round + 1}"),
        element("span", f"reference answer {rollout.answer}"),
        element("span", f"finish: {rollout.finish}"),
        element("span", rollout.instance_id),
    ]
    hint = element("mark", _clipped(rollout.hint)) if rollout.hint else Markup()
    return element(
        "article",
        element("header", *facts),
        element("pre", _clipped(rollout.question), class_="question"),
        element("pre", hint, _clipped(rollout.text)),
        class_="example",
    )


def _clipped(text: str) -> str:
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    half = MAX_SHOWN_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _card(run: RunFolder) -> Markup:
    rows = [[key, _inline(value)] for key, value in run.card.items()]
    card = (
        table(["", ""], rows, numbers_from=2)
        if rows
        else element("p", "There is no run card.", class_="soft")
    )
    return join(
        [card, _details("Settings (resolved.yaml)", _yaml(run.settings)) if run.settings else Markup()]
    )


def _inline(value: Any) -> str:
    """A value of the run card in a few words: nested keys become ``key: value`` parts."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_inline(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(_inline(part) for part in value)
    return (
        f"{value:,}"
        if isinstance(value, int) and abs(value) >= 10_000 and not isinstance(value, bool)
        else str(value)
    )


def _yaml(value: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
    return text


def _details(title: str, text: str) -> Markup:
    return element("details", element("summary", title), element("pre", text))


def percent(share: float) -> str:
    """A share in [0, 1] as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 120:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min" if minutes >= 3 else f"{seconds:.0f} s"
