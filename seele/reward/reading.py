"""Which part of a response is graded, and which responses are wrong unread: in training, validation and
evaluation.
"""

from dataclasses import dataclass

from seele.config.settings import RewardConfig
from seele.records import Finish, Grade, GradeReason
from seele.reward.extract import text_after_thinking


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingRules:
    """What counts of a response."""

    after_thinking: bool = False
    """True if only the text after ``</think>`` counts."""
    begun: bool = False
    """True if the prompt ends with ``<think>``."""
    truncated_is_wrong: bool = False
    """True if a response that hit the length limit is wrong, whatever it says."""

    def unread(self, finish: Finish) -> Grade | None:
        """Return the verdict on a response that is wrong by how it ended; None if its text decides."""
        if finish is Finish.FLAGGED:
            return Grade(False, GradeReason.WRONG)
        if self.truncated_is_wrong and finish is Finish.LENGTH:
            return Grade(False, GradeReason.TRUNCATED)
        return None

    def counted(self, text: str) -> str | None:
        """Return the part of a response that counts; None if its thoughts never end."""
        return text_after_thinking(text, begun=self.begun) if self.after_thinking else text


def counting_rules(reward: RewardConfig, *, begun: bool) -> CountingRules:
    """Return the rules of a run; ``begun`` if its prompts end with ``<think>``."""
    return CountingRules(
        after_thinking=reward.after_thinking, begun=begun, truncated_is_wrong=reward.truncated_is_wrong
    )
