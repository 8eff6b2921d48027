"""How to prompt an exported model: the prompt of training, and ten lines of vLLM code that build it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from seele.errors import CheckpointError
from seele.records import Chat
from seele.report.run_folder import RunFolder
from seele.rollout.templates import CHAT, NO_CHAT, QUESTION, box_request, stop_strings, template_text

EXAMPLE = "What is 7 times 8?"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptForm:
    """The text around a question, and the longest response."""

    template: str
    """Name of the template; for a file, without folders."""
    text: str | None
    """Template with ``{question}`` in it; None if the tokenizer's chat template makes the prompt."""
    chat: Chat = NO_CHAT
    """Inputs of the chat template other than the question."""
    max_tokens: int
    """Longest response in training."""
    stop: tuple[str, ...] = ()
    """Strings that end a response, as in validation."""

    @property
    def behind_question(self) -> str:
        """Text that a chat appends to a question that does not mention ``\\boxed`` itself."""
        return box_request("", self.chat)


def read_prompt_form(run: RunFolder) -> PromptForm:
    """Read the prompt form of a run.

    Raises:
        CheckpointError: If the run's settings lack the template or the response limit.
        ConfigError: If the file of the template is missing.
    """
    template, max_tokens = run.setting("seele.prompt.template"), run.setting("data.max_response_length")
    if not isinstance(template, str) or not isinstance(max_tokens, int):
        raise CheckpointError(
            f"{run.name}: resolved.yaml lacks seele.prompt.template or data.max_response_length, "
            "which define the prompt; name the folder of a training run"
        )
    return PromptForm(
        template=template.rpartition("/")[2],
        text=None if template == CHAT else template_text(template),
        chat=Chat(
            run.setting("seele.prompt.system"),
            run.setting("data.apply_chat_template_kwargs") or {},
            bool(run.setting("seele.prompt.open_thinking")),
            run.setting("seele.prompt.ask") or "",
        ),
        max_tokens=max_tokens,
        stop=_stop_of(template, run.setting("seele.prompt.stop")),
    )


def _stop_of(template: str, chosen: Sequence[str] | None) -> tuple[str, ...]:
    """Return the run's stop strings; a chat ends with the model's own end of text, which vLLM knows."""
    return stop_strings(template, None) if chosen is None else tuple(chosen)


def render_snippet(form: PromptForm, *, model: str, dtype: str | None) -> str:
    """At most ten lines of Python that answer a question greedily, with the prompt tokens of training.

    Args:
        form: Prompt form of the model.
        model: Name or folder for vLLM.
        dtype: The type that vLLM must be told to keep, if it would choose another by default.
    """
    engine = f"LLM(model={_literal(model)}" + (f", dtype={_literal(dtype)})" if dtype else ")")
    if form.text is None:
        settings = f", chat_template_kwargs={dict(form.chat.kwargs)!r}" if form.chat.kwargs else ""
        asked = f" + {_literal(form.behind_question)}" if form.behind_question else ""
        user = f'{{"role": "user", "content": question{asked}}}'
        system = form.chat.system
        first = "" if system is None else f'{{"role": "system", "content": {_literal(system)}}}, '
        build = f"prompts = [[{first}{user}] for question in questions]"
        call, opening = f"chat(prompts, sampling{settings})", []
    else:
        opening = [f"template = {_literal(form.text)}"]
        build = f'prompts = [template.replace("{QUESTION}", question) for question in questions]'
        call = "generate(prompts, sampling)"
    # vLLM looks for marks such as <|im_end|> in the text, which has none without the second setting.
    stop = f", stop=[{', '.join(map(_literal, form.stop))}], skip_special_tokens=False" if form.stop else ""
    lines = [
        "from vllm import LLM, SamplingParams",
        "",
        *opening,
        f"questions = [{_literal(EXAMPLE)}]",
        build,
        "",
        f"sampling = SamplingParams(temperature=0.0, max_tokens={form.max_tokens}{stop})",
        f"llm = {engine}",
        f"for output in llm.{call}:",
        "    print(output.outputs[0].text)",
    ]
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    """Return a text as a Python literal in double quotes, which JSON uses, too."""
    return json.dumps(text, ensure_ascii=False)
