"""``--max-tokens`` of ``seele data prepare``: skip problems that do not fit a model's context."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seele.config.settings import PromptConfig
from seele.errors import ConfigError, DependencyError
from seele.records import Instance

if TYPE_CHECKING:
    from seele.data.sources import Counts

REASON = "too_many_tokens"

MaxTokensOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most --tokenizer tokens of prompt, solution and end of text; longer problems are skipped.",
        show_default="all",
    ),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(help="Hugging Face folder or name of the model that --max-tokens counts for."),
]
TemplateOption = Annotated[
    str,
    typer.Option(
        help="Prompt template that --max-tokens counts with (seele.prompt.template). chat counts with the "
        "default request for a box, and without a run's other seele.prompt settings, such as system."
    ),
]
DEFAULT_TEMPLATE = PromptConfig().template


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimit:
    """A limit that decides which problems are kept, and its description for the manifest."""

    keeps: Callable[[Instance], bool]
    about: dict[str, Any]

    def within(self, instances: Iterable[Instance], counts: "Counts") -> Iterator[Instance]:
        """Yield the problems that are kept, and count the others."""
        for instance in instances:
            if self.keeps(instance):
                yield instance
            else:
                counts.left_out[REASON] += 1


def read_token_limit(max_tokens: int | None, tokenizer: str | None, template: str) -> TokenLimit | None:
    """Return the limit that the options set; None if neither is given.

    Raises:
        ConfigError: If one option is given without the other, or the tokenizer or the template is unknown.
        DependencyError: If ``transformers`` is not installed.
    """
    if max_tokens is None and tokenizer is None:
        return None
    if max_tokens is None or tokenizer is None:
        raise ConfigError("--max-tokens and --tokenizer: give both, or neither")
    from seele.rollout.solutions import encode_problem
    from seele.rollout.templates import CHAT, check_template

    check_template(template)
    loaded = _load_tokenizer(tokenizer)
    if template == CHAT and loaded.chat_template is None:
        raise ConfigError(f"--template chat: the tokenizer of {tokenizer} has no chat template")

    def keeps(instance: Instance) -> bool:
        encoded = encode_problem(loaded, instance.question, instance.steps, template)
        return len(encoded.prompt_ids) + len(encoded.solution(loaded)) <= max_tokens

    # The folder's own name would make the manifest differ from machine to machine.
    name = Path(tokenizer).name if Path(tokenizer).is_dir() else tokenizer
    return TokenLimit(keeps=keeps, about={"max_tokens": max_tokens, "tokenizer": name, "template": template})


def _load_tokenizer(name: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise DependencyError("--max-tokens needs 'transformers'; run: pip install transformers") from error
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"--tokenizer {name}: no tokenizer found ({reason}); give a Hugging Face folder or the name of a "
            "model on the hub"
        ) from error
