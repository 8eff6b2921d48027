"""The model card: base model, data, training, evaluation, prompt, inference and licence.

Everything comes from the run folder and the files that it names. Unrecorded values are stated as unknown.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seele.export.base_model import UNKNOWN, BaseModel, Licence
from seele.export.evaluation import Evaluation, describe_decoding, percent, render_front_matter
from seele.export.prompt import PromptForm, render_snippet
from seele.export.training import Progress, TrainingFile, without_folders
from seele.maths.tables import markdown_table
from seele.methods import METHODS
from seele.report.run_folder import RunFolder, ScoreLine

PAPER = "https://arxiv.org/abs/2509.06923"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """Everything that a card says."""

    name: str
    """The model's name."""
    loads_as: str
    """What vLLM should load: a name on the hub, or the folder."""
    run: RunFolder
    progress: Progress
    base: BaseModel
    licence: Licence
    files: Sequence[TrainingFile]
    changed: Mapping[str, tuple[Any, Any]]
    """Value and default of the settings that differ from the method's defaults."""
    evaluations: Sequence[Evaluation]
    prompt: PromptForm
    dtype: str | None
    """As in ``render_snippet``."""

    @property
    def method(self) -> str:
        """``seele.method``."""
        return str(self.run.setting("seele.method"))


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
        return (
            f"{head}Not evaluated.\nTo add accuracy to this card, run this and export again; RUN is the "
            f"folder of the run `{facts.run.name}`:\n\n"
            f"```bash\nCKPT_DIR=RUN{which} bash scripts/eval.sh\n```\n"
        )
    return head + "\n".join(_scores(evaluation) for evaluation in facts.evaluations)


def _scores(evaluation: Evaluation) -> str:
    heads = ("benchmark", "decoding", "problems", "accuracy in % (95 % interval)", "tokens", "truncated %")
    table = markdown_table(heads, map(_score, evaluation.scores), num_names=2)
    said = evaluation.conditions
    conditions = ", ".join(
        f"{what} {say(without_folders(said[key]))}"
        for key, what in (
            ("template", "template"),
            ("max_tokens", "at most tokens"),
            ("top_p", "top-p"),
            ("grader", "grader"),
            ("answers", "answers in"),
            ("after_thinking", "after the thoughts only:"),
            ("truncated_is_wrong", "truncated is wrong:"),
            ("seed", "seed"),
        )
        if key in said
    )
    return (
        f"{table}\nAccuracy without hints; bootstrap intervals over problems. Measured with {conditions}.\n"
    )


def _score(score: ScoreLine) -> tuple[str, ...]:
    return (
        score.benchmark,
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
        behind = form.behind_question.strip()
        asked = f" and, on a line of its own, `{behind}`" if behind else ""
        how = "The tokenizer's chat template makes the prompt from one user message, "
        how += f"the question{asked}{told}.\n"
        if form.chat.open_thinking:
            how += "In training the prompt ended with `<think>`, which the model otherwise writes itself.\n"
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
            f"## Licence\n\nUnknown. {licence.source}\nAsk the base model's makers before using this one.\n"
        )
    return f"## Licence\n\n{name}. {licence.source}\n"


def _fenced(language: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}\n"


def render_data(facts: CardFacts) -> str:
    """Section on training data: files, data sets, licences, sizes and checksums."""
    rows = [
        (
            f"`{file.name}`",
            file.title or UNKNOWN,
            file.licence,
            UNKNOWN if file.problems is None else f"{file.problems:,}",
            f"`{file.sha256}`" if file.sha256 else UNKNOWN,
        )
        for file in facts.files
    ]
    # That of the second of two stages leaves out the first one's problems.
    count = None if facts.run.first_stage else facts.run.card.get("num_problems")
    kept = f"\n{count:,} problems were kept for training.\n" if isinstance(count, int) else ""
    heads = ("file", "data set", "licence", "problems", "SHA-256")
    return f"## Training data\n\n{markdown_table(heads, rows, num_names=3)}{kept}"


def render_training(facts: CardFacts) -> str:
    """Section on training: steps, costs, hardware, seed, commit, and settings that are not the defaults."""
    card, progress = facts.run.card, facts.progress
    rows = {
        "method": f"`{facts.method}`",
        "curriculum": _part(facts.run, "seele.curriculum.name"),
        "selection": _part(facts.run, "seele.selection.name"),
        "steps": progress.steps,
        **progress.costs,
        "hardware": _hardware(card.get("hardware"), nodes=facts.run.setting("trainer.nnodes")),
        "seed": say(card.get("seed", facts.run.setting("seele.seed"))),
        "commit": _commit(card.get("commit")),
        "versions": _versions(card.get("versions")),
    }
    table = markdown_table(("", ""), rows.items(), num_names=2)
    return f"## Training\n\n{table}\n{_settings(facts)}"


def _settings(facts: CardFacts) -> str:
    if not facts.changed:
        return f"All settings are the defaults of `{facts.method}`.\n"
    rows = (
        (f"`{key}`", f"`{_literal(value)}`", f"`{_literal(default)}`")
        for key, (value, default) in sorted(facts.changed.items())
    )
    table = markdown_table(("setting", "this run", "default"), rows, num_names=3)
    return f"Settings that are not the defaults of `{facts.method}`:\n\n{table}"


def _part(run: RunFolder, key: str) -> str:
    return f"`{say(run.setting(key))}`"


def say(value: Any) -> str:
    """Return a value as text; ``unknown`` if it was not recorded."""
    return UNKNOWN if value is None else _literal(value)


def _literal(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _hardware(hardware: Any, *, nodes: Any) -> str:
    """Describe the hardware; the run card has that of the first node."""
    if not isinstance(hardware, Mapping):
        return UNKNOWN
    gpus = Counter(hardware.get("gpus") or ())
    if gpus:
        node = ", ".join(f"{count} x {gpu}" for gpu, count in gpus.items())
    else:
        node = f"{hardware.get('cpu', UNKNOWN)}, {hardware.get('cpu_cores', UNKNOWN)} cores, no GPU"
    return f"{nodes} nodes, the first with {node}" if isinstance(nodes, int) and nodes > 1 else node


def _commit(commit: Any) -> str:
    if not isinstance(commit, str):
        return UNKNOWN
    name, changed, _ = commit.partition("+changes")
    return f"`{name}`" + (", with uncommitted changes" if changed else "")


def _versions(versions: Any) -> str:
    if not isinstance(versions, Mapping) or not versions:
        return UNKNOWN
    return ", ".join(f"{name} {version}" for name, version in versions.items())
