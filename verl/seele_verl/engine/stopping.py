"""Ends a response at its first sure error, inside vLLM: no token is written after the line.

This is a custom logits processor of vLLM's runner V1 (``vllm/v1/sample/logits_processor``). If a request has
a watch (``seele.reward.walks.ErrorWatch``) and a line of its response has an error, the next token is the end
of the text. It decides in the engine's own loop, so a busy machine does not change the result.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.tokenizers import get_tokenizer
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from seele.errors import PluginError
from seele.reward.walks import ErrorWatch
from seele.rollout.sampling import CONTEXT
from seele_verl.engine.client import WATCH


@dataclass(slots=True)
class Watched:
    """A request that ends at its first error."""

    watch: ErrorWatch
    token_ids: list[int]
    """vLLM's own list, which grows as tokens are drawn."""
    num_seen: int = 0
    num_decoded: int = 0
    """Tokens up to the end of a line, which are not decoded again."""
    chars_read: int = 0
    """Characters behind these tokens that were searched for an error."""
    has_error: bool = False


class StopAtError(LogitsProcessor):
    """The logits processor; vLLM creates one for each engine."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        config = vllm_config.model_config
        self._where = {
            "tokenizer_name": config.tokenizer,
            "tokenizer_mode": config.tokenizer_mode,
            "trust_remote_code": config.trust_remote_code,
        }
        self._watched: dict[int, Watched] = {}

    @cached_property
    def _tokenizer(self) -> Any:
        return get_tokenizer(**self._where)

    @cached_property
    def _line_ends(self) -> frozenset[int]:
        """Tokens that contain a line break: lines are checked only after one of these."""
        texts = self._tokenizer.batch_decode([[token] for token in range(len(self._tokenizer))])
        return frozenset(token for token, text in enumerate(texts) if "\n" in text)

    def is_argmax_invariant(self) -> bool:
        """Return False: it also ends greedy responses."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Update the watched requests after requests came, went or moved."""
        process_dict_updates(self._watched, batch_update, _watched)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the (R, V) logits of the requests' next tokens, forced to the end of text after an error."""
        for row, request in self._watched.items():
            if self._has_error(request):
                logits[row] = -torch.inf
                logits[row, self._tokenizer.eos_token_id] = 0.0
        return logits

    def _has_error(self, request: Watched) -> bool:
        new = request.token_ids[request.num_seen :]
        while new and new[-1] < 0:  # placeholder for a token that is still being drawn
            new.pop()
        request.num_seen += len(new)
        if not request.has_error and not self._line_ends.isdisjoint(new):
            text = self._text_behind(request)
            lines = text[: text.rfind("\n") + 1]
            # If a user's own walk fails, the rollout worker reports it, with the problem's id.
            with suppress(PluginError):
                request.has_error = request.watch.finds_error(lines[request.chars_read :])
            request.chars_read = len(lines)
            if text.endswith("\n"):
                request.num_decoded, request.chars_read = request.num_seen, 0
        return request.has_error

    def _text_behind(self, request: Watched) -> str:
        """Return the text behind ``num_decoded`` tokens: these and a few before them are decoded together,
        because a single token may be part of a character.
        """
        context = max(0, request.num_decoded - CONTEXT)
        known, text = (
            self._tokenizer.decode(request.token_ids[context:end], skip_special_tokens=True)
            for end in (request.num_decoded, request.num_seen)
        )
        return text[len(known) :]


def _watched(params: SamplingParams, _: list[int] | None, token_ids: list[int]) -> Watched | None:
    watch = (params.extra_args or {}).get(WATCH)
    return None if watch is None else Watched(ErrorWatch.from_json(watch), token_ids)
