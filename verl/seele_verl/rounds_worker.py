"""The prompt's coroutine: SEELE's rounds around verl's engine.

verl starts one coroutine per prompt (``AgentLoopWorkerTQ._run_prompt``) and waits for all of them only at
the end of the step; we replace its body with ``seele.rollout.rounds.run_rounds``. Validation takes the same
path with one round and no hint.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import accumulate, islice, takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from seele.hints import steers_on_milestones
from seele.methods import METHODS
from seele.methods.advantage import group_advantages
from seele.methods.baselines import build_baseline, group_of
from seele.methods.loss_terms import LossTerms
from seele.methods.sources import build_source, given_responses
from seele.records import Completion, Finish, Instance, Origin, Rollout, Success, Visit
from seele.reward.extract import opens_thoughts
from seele.reward.function_grader import open_grader
from seele.reward.length_penalty import overlong_penalty
from seele.reward.milestones import milestones_of
from seele.reward.walks import ErrorWatch
from seele.rollout.rounds import (
    NoHintController,
    ProblemVisit,
    grade_given,
    is_correct,
    run_rounds,
    run_until_success,
    run_with_rescue,
)
from seele.rollout.sampling import rollout_seed
from seele.rollout.solutions import EncodedProblem, encode_problem
from seele.rollout.templates import prompt_text, stop_strings
from seele_verl.compat import undecorated
from seele_verl.controller_actor import RemoteController
from seele_verl.engine.completions import CompletionClient
from seele_verl.faults import describe, plugin_fault, report_fault
from seele_verl.protocol import TrainingRows, training_rows, validation_rows
from seele_verl.response_grader import ResponseGrader
from seele_verl.rollout_cache import RolloutCache
from seele_verl.round_sampler import RoundSampler, TrainingSampler
from seele_verl.settings import read_settings

logger = logging.getLogger(__name__)


class RoundsWorker(undecorated(AgentLoopWorkerTQ)):  # type: ignore[misc]
    """verl's rollout worker with SEELE's rounds instead of n independent agent loops."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.controller = RemoteController()
        self.engine = CompletionClient(self.llm_client, self.tokenizer)
        self.run = Path(self.config.trainer.default_local_dir)
        self._prompts: dict[str, asyncio.Task[None] | None] = {}
        seele = read_settings(self.config)
        model = self.config.actor_rollout_ref.model.path
        self.cache = RolloutCache(Path(seele.rollout_cache), model=model) if seele.rollout_cache else None
        self.answers = open_grader(seele.reward)
        self.apply_settings()

    def apply_settings(self) -> None:
        """Read the settings, and build what follows from them."""
        self.seele = read_settings(self.config)
        method, how = METHODS[self.seele.method], self.seele.prompt
        self.source = build_source(self.seele.off_policy)
        self.terms = LossTerms(self.seele)
        self.baseline = build_baseline(
            self.seele,
            leave_one_out=method.leaves_one_out,
            divide_by_std=self.config.algorithm.norm_adv_by_std_in_grpo,
        )
        # With a critic or credit, the trainer computes the advantages.
        self.estimates_advantages = not (method.has_critic or self.seele.credit.gives_advantages)
        self.stop = stop_strings(how.template, self.tokenizer) if how.stop is None else how.stop
        prompt = prompt_text(self.tokenizer, "question", how.template, how.chat)
        self.grade = ResponseGrader(
            self.seele, self.answers, self.tokenizer, begins_thinking=opens_thoughts(prompt)
        )

    async def _run_prompt(
        self,
        prompt: dict[str, Any],
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        trace: bool = False,
    ) -> None:
        """Roll one prompt out, store its rows, and publish how the group ended: verl waits for that tag.

        The trainer has marked the group as pending, which verl treats like running, so nothing is published
        at the start.
        """
        uid, partition_id = prompt["uid"], "val" if trajectory["validate"] else "train"
        status = "failure"
        self._prompts[uid] = asyncio.current_task()
        try:
            roll_out = self._validate_prompt if trajectory["validate"] else self._train_prompt
            rows, visit = await roll_out(prompt, sampling_params)
            await tq.async_kv_batch_put(
                keys=rows.keys, fields=rows.fields, tags=rows.tags, partition_id=partition_id
            )
            if visit is not None:
                await self.controller.keep_visit(uid, visit)
            status = "finished"
        except Exception as error:
            if fault := plugin_fault(error):
                await report_fault(fault, partition_id=partition_id)
            logger.exception("problem %s is skipped in this step", prompt["instance"].instance_id)
            if not trajectory["validate"]:
                await self.controller.count_dropped_prompt(describe(error))
        finally:
            await tq.async_kv_put(key=uid, partition_id=partition_id, tag={"status": status})
            del self._prompts[uid]

    async def live(self) -> None:
        """Never end: a caller that waits for this learns of the worker's death."""
        await asyncio.Event().wait()

    async def cancel_prompts(self, uids: Sequence[str]) -> None:
        """Stop rolling these prompts out; afterwards nothing more is stored for them, and the controller has
        been told of the end of their visits.
        """
        tasks = [task for uid in uids if (task := self._prompts.get(uid))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await self.controller.has_been_told()

    async def _validate_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any]
    ) -> tuple[TrainingRows, None]:
        """Roll one prompt out without a hint, and return its rows."""
        instance: Instance = dataclasses.replace(prompt["instance"], milestones=None)
        step: int = prompt["global_steps"]
        how = self.seele.prompt
        encoded = encode_problem(self.tokenizer, instance.question, (), how.template, how.chat)
        sample = RoundSampler(
            engine=self.engine,
            run=self.run,
            uid=prompt["uid"],
            encoded=encoded,
            sampling_params=sampling_params,
            max_tokens=self.rollout_config.response_length,
            seed_of=partial(rollout_seed, self.seele.seed, -1 - step, instance.instance_id),
            stop=self.stop,
        )
        visit = ProblemVisit(
            instance=instance, controller=NoHintController(), sample=sample, grade=self.grade
        )
        rollouts = await run_rounds(visit, (self.rollout_config.val_kwargs.n,))
        rows = validation_rows(
            prompt["uid"],
            instance,
            rollouts,
            prompt_ids=encoded.prompt_ids,
            data_source=prompt["data_source"],
            model_version=sample.model_version,
            global_step=step,
        )
        return rows, None

    async def _train_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any]
    ) -> tuple[TrainingRows, Visit]:
        """Roll one prompt out in rounds, and return its group's rows and the visit."""
        hints, how = self.seele.hints, self.seele.prompt
        instance: Instance = prompt["instance"]
        encoded = encode_problem(
            self.tokenizer,
            instance.question,
            instance.steps if self.source.reads_solutions or hints.gives_hints else (),
            how.template,
            how.chat,
            hint_request=hints.user_request,
            tiers=instance.tiers,
        )
        if hints.refresh != "never":
            instance = _within(instance, encoded, self.config.data.max_prompt_length)
        if self.grade.walks:
            instance = dataclasses.replace(instance, milestones=milestones_of(instance))
        sample = self._training_sampler(prompt, instance, encoded, sampling_params)
        replayed: Success | None = prompt.get("replayed")
        given = self._given(instance, encoded, replayed.completion if replayed else None)
        first, *others = hints.rollouts_of_rounds
        problem_visit = ProblemVisit(
            instance=instance,
            controller=self.controller.of_visit(prompt["uid"]),
            sample=sample,
            grade=self.grade,
            succeeded=attrgetter("passed_next") if steers_on_milestones(hints.controller) else is_correct,
        )
        # Supplied responses replace rollouts of the only round.
        rollouts = await self._rounds()(problem_visit, (first - len(given), *others))
        rollouts += await grade_given(
            given,
            instance,
            first_index=len(rollouts),
            origin=self.source.origin,
            grade=self.grade,
            hint_steps=replayed.hint_steps if replayed else 0,
        )
        penalties = tuple(self._penalty(rollout, encoded) for rollout in rollouts)
        visit = Visit(
            instance=instance,
            step=prompt["global_steps"],
            prompt_tokens=len(encoded.prompt_ids),
            step_tokens=encoded.tokens_by_step,
            rollouts=tuple(rollouts),
            penalties=penalties,
        )
        group = group_of(
            instance.instance_id, rollouts, penalties=penalties, target_accuracy=hints.target_accuracy
        )
        advantages = None
        if self.estimates_advantages:
            advantages = group_advantages(group, source=self.source, baseline=self.baseline)
        rows = training_rows(
            prompt["uid"],
            instance,
            rollouts,
            encoded=encoded,
            model_version=sample.model_version,
            global_step=visit.step,
            terms=self.terms,
            source=self.source,
            rewards=group.rewards_G.tolist(),
            advantages=advantages,
            tells_accuracy=bool(self.config.algorithm.filter_groups.enable),
        )
        return rows, visit

    def _rounds(self) -> Callable[..., Coroutine[Any, Any, list[Rollout]]]:
        """Return how the problem's rounds follow each other."""
        hints = self.seele.hints
        if hints.when == "rescue":
            return partial(run_with_rescue, failing_accuracy=hints.failing_accuracy)
        if hints.when == "until_success":
            return partial(
                run_until_success,
                failing_accuracy=hints.failing_accuracy,
                passing_accuracy=hints.passing_accuracy,
            )
        return partial(run_rounds, quorum=hints.round_quorum)

    def _training_sampler(
        self,
        prompt: dict[str, Any],
        instance: Instance,
        encoded: EncodedProblem,
        sampling_params: dict[str, Any],
    ) -> TrainingSampler:
        step: int = prompt["global_steps"]
        # The step may have begun the problem before, with these seeds.
        taken = prompt.get("repeat", 0) * self.seele.hints.rollouts_per_prompt
        any_round_counts = self.seele.hints.when == "until_success"

        def seed_of(round_index: int, rollout: int) -> int:
            return rollout_seed(self.seele.seed, step, instance.instance_id, round_index, taken + rollout)

        def watch_of(hint_steps: int, round_index: int, rollout: int) -> ErrorWatch | None:
            # The problem's first rollout is never stopped, whatever it writes; any round may be the only one
            # that is kept where rounds that fail are thrown away.
            is_first = rollout == 0 and (round_index == 0 or any_round_counts)
            return None if is_first else self.grade.watch(instance, hint_steps)

        return TrainingSampler(
            engine=self.engine,
            run=self.run,
            uid=prompt["uid"],
            encoded=encoded,
            sampling_params=sampling_params,
            max_tokens=self.rollout_config.response_length,
            seed_of=seed_of,
            in_response=self.source.in_response,
            controller=self.controller,
            step=step,
            cache=self.cache,
            watch_of=watch_of if self.grade.walks and instance.milestones and prompt["stops"] else None,
        )

    def _given(
        self, instance: Instance, encoded: EncodedProblem, replayed: Completion | None
    ) -> list[Completion]:
        """Return the group's supplied responses, which are not generated."""
        at_most = self.seele.hints.rollouts_of_rounds[0] - 1
        given = given_responses(
            self.source, instance, encoded, self.tokenizer, replayed=replayed, at_most=at_most
        )
        return [self._cut(each) for each in given]

    def _cut(self, given: Completion) -> Completion:
        """Cut a supplied response that is too long: checks before the run decided that it may be cut."""
        limit = self.rollout_config.response_length
        if len(given.token_ids) <= limit:
            return given
        token_ids = given.token_ids[:limit]
        return dataclasses.replace(
            given,
            text=self.tokenizer.decode(token_ids, skip_special_tokens=True),
            token_ids=token_ids,
            log_probs=given.log_probs[:limit],
            finish=Finish.LENGTH,
        )

    def _penalty(self, rollout: Rollout, encoded: EncodedProblem) -> float:
        """Return the rollout's penalty for the length of its response, including a prefix in it."""
        overlong = self.config.reward.reward_kwargs.overlong_buffer_cfg
        if not overlong.enable or rollout.origin is not Origin.POLICY:
            return 0.0
        prefix_ids = encoded.hint(rollout.hint_steps) if self.source.in_response else []
        return overlong_penalty(
            len(prefix_ids) + len(rollout.completion.token_ids),
            max_response_tokens=self.config.reward.reward_kwargs.max_resp_len,
            buffer_tokens=overlong.len,
            factor=overlong.penalty_factor,
        )


def _within(instance: Instance, encoded: EncodedProblem, limit: int) -> Instance:
    """Return the problem without hints that do not fit: the policy's own solutions were not checked yet."""
    lengths = accumulate(encoded.tokens_by_step, initial=len(encoded.prompt_ids))
    legal = islice(lengths, len(instance.legal_hint_ratios))
    fitting = takewhile(lambda length: length <= limit, legal)
    return dataclasses.replace(instance, longest_hint=max(sum(1 for _ in fitting) - 1, 0))
