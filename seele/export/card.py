"""The model card: what was trained from what, how, how well it does, and how to ask it.

Everything comes from the run folder and the files that it names. What was not recorded is said to be unknown.
"""

from seele.export.base_model import UNKNOWN, Licence
from seele.export.evaluation import Evaluation
from seele.export.facts import CardFacts
from seele.export.front_matter import describe_decoding, percent, render_front_matter
from seele.export.prompt import render_snippet
from seele.export.training_section import cell, render_data, render_training, say
from seele.maths.tables import markdown_table
from seele.methods import METHODS
from seele.report.run_folder import ScoreLine

PAPER = "https://arxiv.org/abs/2509.06923"


def render_card(facts: CardFacts) -> str:
    """``README.md`` of the exported folder."""
    hub_names = dict.fromkeys(name for file in facts.files for name in file.hub_names)
    front_matter = render_front_matter(
        name=facts.name,
        method=facts.method,
        base=facts.base,
        licence=facts.licence,
        datasets=list(hub_names),
        evaluations=facts.evaluations,
    )
    sections = (
        _introduction(facts),
        _base(facts),
        render_data(facts),
        render_training(facts),
        _evaluation(facts),
        _prompt(facts),
        _inference(facts),
        _licence(facts.licence),
    )
    return front_matter + "\n" + "\n".join(sections)


def _introduction(facts: CardFacts) -> str:
    method = METHODS.get(facts.method)
    what = f": {method.summary}" if method else ""
    text = (
        f"# {facts.name}\n\n"
        f"`{facts.base.name}` after {facts.progress.steps} of training with the method "
        f"`{facts.method}`{what}.\nTrained with [SEELE]({PAPER}) on verl.\n"
    )
    return text + (f"\n**{facts.progress.warning}**\n" if facts.progress.warning else "")


def _base(facts: CardFacts) -> str:
    base = facts.base
    name = f"[{base.name}](https://huggingface.co/{base.name})" if base.is_on_hub else f"`{base.name}`"
    parameters = facts.run.card.get("parameters")
    size = f", {parameters:,} parameters" if isinstance(parameters, int) else ""
    where = "" if base.is_on_hub else "\nIt was a local folder, so this card cannot link to it.\n"
    return f"## Base model\n\n{name}{size}\n{where}"


def _evaluation(facts: CardFacts) -> str:
    head = "## Evaluation\n\n"
    if not facts.evaluations:
        step = facts.progress.step
        which = "" if step is None else f" LAST_STEP={step}"
        command = f"CKPT_DIR=runs/{facts.run.name}{which} bash scripts/eval.sh"
        return (
            f"{head}Not evaluated.\nThis measures accuracy; export again to have it here:\n\n"
            f"```bash\n{command}\n```\n"
        )
    return head + "\n".join(_scores(evaluation) for evaluation in facts.evaluations)


def _scores(evaluation: Evaluation) -> str:
    heads = ("benchmark", "decoding", "problems", "accuracy in % (95 % interval)", "tokens", "truncated %")
    table = markdown_table(heads, map(_score, evaluation.scores), num_names=2)
    said = evaluation.conditions
    conditions = ", ".join(
        f"{what} {say(said[key])}"
        for key, what in (
            ("template", "template"),
            ("max_tokens", "at most tokens"),
            ("top_p", "top-p"),
            ("grader", "grader"),
            ("answers", "answers in"),
            ("after_thinking", "behind the thoughts only:"),
            ("seed", "seed"),
        )
        if key in said
    )
    return (
        f"{table}\nAccuracy without hints; bootstrap intervals over problems. Measured with {conditions}.\n"
    )


def _score(score: ScoreLine) -> tuple[str, ...]:
    return (
        cell(score.benchmark),
        describe_decoding(score),
        f"{score.problems:,}",
        percent(score),
        f"{score.mean_response_tokens:.1f}",
        f"{100 * score.truncated_share:.1f}",
    )


def _prompt(facts: CardFacts) -> str:
    form = facts.prompt
    if form.text is None:
        told = f", with `{say(dict(form.chat.kwargs))}`" if form.chat.kwargs else ""
        how = f"The tokenizer's chat template makes the prompt of one user message, the question{told}.\n"
        if form.chat.open_thinking:
            how += "In training the prompt ended with `<think>`, which the model else writes by itself.\n"
        if form.chat.system is not None:
            how += f"\nThe system message before it:\n\n{_fenced('text', form.chat.system)}"
    else:
        ending = " It ends with a line break." if form.text.endswith("\n") else ""
        how = (
            f"The template of training is `{form.template}`; `{{question}}` stands for the question.{ending}"
            f"\n\n{_fenced('text', form.text)}"
        )
    return f"## Prompt\n\n{how}\nResponses had at most {form.max_tokens:,} tokens in training.\n"


def _inference(facts: CardFacts) -> str:
    snippet = render_snippet(facts.prompt, model=facts.loads_as, dtype=facts.dtype)
    return f"## Inference with vLLM\n\n{_fenced('python', snippet)}"


def _licence(licence: Licence) -> str:
    name = licence.name or licence.identifier
    if licence.identifier == UNKNOWN:
        return (
            f"## Licence\n\nUnknown. {licence.source}\nAsk who made the base model before you use this one.\n"
        )
    return f"## Licence\n\n{name}. {licence.source}\n"


def _fenced(language: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}\n"
