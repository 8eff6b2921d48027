"""The worked solution as one rollout of its group (LUFFY, arXiv:2504.14945)."""

from typing import ClassVar

from seele.methods.sources.source import OffPolicySource
from seele.records import Completion, Finish, Instance
from seele.rollout.solutions import EncodedProblem
from seele.rollout.templates import Tokenizer


class TraceSource(OffPolicySource):
    """Each group with a solution receives it."""

    adds_rollouts: ClassVar[bool] = True
    reads_solutions: ClassVar[bool] = True

    def given(
        self,
        instance: Instance,
        encoded: EncodedProblem,
        tokenizer: Tokenizer,
        *,
        replayed: Completion | None = None,
    ) -> list[Completion]:
        """The solution, with probability 1 under its author, as the actual one is unknown (section 4)."""
        if not encoded.step_ids:
            return []
        token_ids = tuple(encoded.solution(tokenizer))
        text = tokenizer.decode(token_ids, skip_special_tokens=True)
        certain = (0.0,) * len(token_ids)
        return [Completion(text=text, token_ids=token_ids, log_probs=certain, finish=Finish.STOP)]

    def response_tokens(self, instance: Instance, encoded: EncodedProblem, tokenizer: Tokenizer) -> int:
        """The number of tokens that ``given`` returns, computed without the text."""
        return len(encoded.solution(tokenizer)) if encoded.step_ids else 0
