"""The verdict on a response in training: its answer, and its walk along the milestones of its problem."""

import dataclasses
from functools import partial
from typing import Any

from seele.config import SeeleConfig
from seele.hints import steers_on_milestones
from seele.records import Completion, Grade, Instance
from seele.reward.function_grader import FunctionGrader
from seele.reward.grader import ProblemGrader, reward_form
from seele.reward.milestones import num_shown
from seele.reward.reading import counting_rules
from seele.reward.walks import ErrorWatch, find_walk
from seele.rollout.sampling import in_tokens
from seele.rollout.templates import Tokenizer


class ResponseGrader:
    """Grades responses as ``seele.reward`` and ``seele.credit`` say (``seele.rollout.rounds.Grader``)."""

    def __init__(
        self, seele: SeeleConfig, answers: ProblemGrader, tokenizer: Tokenizer, *, begins_thinking: bool
    ) -> None:
        """Args:
        seele: The run's settings.
        answers: Grades answers.
        tokenizer: The policy's.
        begins_thinking: True if prompts open the thoughts, so that responses begin inside them.
        """
        self._seele, self._answers, self._tokenizer = seele, answers, tokenizer
        self._rules = counting_rules(seele.reward, begun=begins_thinking)
        self.walks = seele.credit.walks or steers_on_milestones(seele.hints.controller)
        """True if responses are walked along the milestones of their problem."""

    async def __call__(self, completion: Completion, instance: Instance, *, hint_steps: int) -> Grade:
        """The verdict on a response whose prompt showed the first ``hint_steps`` steps; with its walk in
        tokens where the problem has milestones.
        """
        grade = await self._verdict(completion, instance, hint_steps=hint_steps)
        if not (self.walks and instance.milestones):
            return grade
        walk = partial(
            find_walk(self._seele.credit.walk),
            instance.milestones,
            completion.text,
            **self._stated_before(instance, hint_steps),
        )
        seen = walk(correct=grade.correct)
        # Only a right answer can excuse an error.
        unaware = walk(correct=None) if grade.correct else seen
        is_flagged = unaware.first_error is not None
        if grade.correct and self._seele.credit.stop and not is_flagged:
            # Stopping does not wait for a line that takes the one before back.
            is_flagged = self.watch(instance, hint_steps).finds_error(completion.text)
        decode = partial(self._tokenizer.decode, skip_special_tokens=True)
        return dataclasses.replace(
            grade, walk=in_tokens(seen, completion.token_ids, decode), is_flagged=is_flagged
        )

    def watch(self, instance: Instance, hint_steps: int) -> ErrorWatch:
        """Return a watch at the beginning of a response to a problem with milestones."""
        return ErrorWatch(
            instance.milestones or (),
            walk=self._seele.credit.walk,
            **self._stated_before(instance, hint_steps),
        )

    def _stated_before(self, instance: Instance, hint_steps: int) -> dict[str, Any]:
        """Return how many milestones the hint states, and the hint that the response continues, empty where
        the user's turn has it.
        """
        hint = instance.hint(hint_steps)
        shown = num_shown(instance.milestones or (), len(hint))
        return {"shown": shown, "hint": "" if self._seele.hints.user_request else hint}

    async def _verdict(self, completion: Completion, instance: Instance, *, hint_steps: int) -> Grade:
        if unread := self._rules.unread(completion.finish):
            return unread
        text = self._rules.counted(completion.text) or ""
        grade = await self._answers.grade_rollout(text, instance, hint_steps=hint_steps)
        if isinstance(self._answers, FunctionGrader):
            return grade
        return reward_form(grade, self._seele.reward.format_score)
