"""The prompt's coroutine: SEELE's rounds around verl's engine.

verl starts one coroutine per prompt (``AgentLoopWorkerTQ._run_prompt``) and waits for all of them only at
the end of the step; we replace its body with ``seele.rollout.rounds.run_rounds``. Validation takes the same
path with one round and no hint.
"""

import asyncio
import dataclasses
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import accumulate, islice, takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any

import ray
import transfer_queue as tq
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.workers.rollout.replica import TokenOutput

from seele.hints import steers_on_milestones
from seele.methods import METHODS
from seele.methods.advantage import group_advantages
from seele.methods.baselines import build_baseline, group_of
from seele.methods.loss_terms import LossTerms
from seele.methods.sources import KEY as SOURCE
from seele.methods.sources import build_source
from seele.plugins import blame
from seele.records import (
    Completion,
    Finish,
    Grade,
    GradeReason,
    Instance,
    Milestone,
    Origin,
    Rollout,
    Success,
    Visit,
)
from seele.reward.extract import opens_thoughts, text_after_thinking
from seele.reward.function_grader import FunctionGrader, open_grader
from seele.reward.grader import reward_form
from seele.reward.milestones import milestones_of, num_shown
from seele.reward.overlong import overlong_penalty
from seele.reward.walks import ErrorWatch, find_walk
from seele.rollout.rounds import (
    NoHintController,
    append_supplied_rollouts,
    is_correct,
    run_rounds,
    run_until_success,
    run_with_rescue,
)
from seele.rollout.sampling import in_tokens, rollout_seed, text_before_stop, token_counts
from seele.rollout.solutions import EncodedProblem, encode_problem
from seele.rollout.templates import prompt_text, stop_strings
from seele_verl.compat import undecorated
from seele_verl.controller_actor import RemoteController
from seele_verl.engine.client import WATCH, generate_round
from seele_verl.faults import describe, plugin_fault, report_fault
from seele_verl.protocol import TrainingRows, training_rows, validation_rows
from seele_verl.rollout_cache import Part, RolloutCache
from seele_verl.runs.watchdog import show_life
from seele_verl.settings import read_settings

logger = logging.getLogger(__name__)

# An engine request fails when its replica is restarted or a node drops out; a prompt is given up after this
# many tries.
MAX_ATTEMPTS = 3


class RoundsWorker(undecorated(AgentLoopWorkerTQ)):  # type: ignore[misc]
    """verl's rollout worker with SEELE's rounds instead of n independent agent loops."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.apply_settings()
        self.controller = RemoteController()
        how = self.seele.prompt
        self.stop = stop_strings(how.template, self.tokenizer) if how.stop is None else how.stop
        prompt = prompt_text(self.tokenizer, "question", how.template, how.chat)
        self.begins_thinking = opens_thoughts(prompt)
        cache = self.seele.rollout_cache
        model = self.config.actor_rollout_ref.model.path
        self.cache = None if cache is None else RolloutCache(Path(cache), model=model)
        self._prompts: dict[str, asyncio.Task[None] | None] = {}
        self.grader = open_grader(self.seele.reward)

    def apply_settings(self) -> None:
        """Read the settings, and build what follows from them."""
        self.seele = read_settings(self.config)
        method = METHODS[self.seele.method]
        self.source = build_source(self.seele.off_policy)
        self.terms = LossTerms(self.seele)
        self.baseline = build_baseline(
            self.seele,
            leave_one_out=method.leaves_one_out,
            divide_by_std=self.config.algorithm.norm_adv_by_std_in_grpo,
        )
        # With a critic or credit, the trainer computes the advantages.
        self.estimates_advantages = not (method.has_critic or self.seele.credit.gives_advantages)

    @property
    def steers_on_milestones(self) -> bool:
        """True if the controller is told of passed milestones instead of right answers."""
        return steers_on_milestones(self.seele.hints.controller)

    @property
    def walks(self) -> bool:
        """True if responses are walked along the milestones of their problem."""
        return self.seele.credit.walks or self.steers_on_milestones

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
            rows = await self._roll_out(prompt, sampling_params, validate=trajectory["validate"])
            await tq.async_kv_batch_put(
                keys=rows.keys, fields=rows.fields, tags=rows.tags, partition_id=partition_id
            )
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

    async def _roll_out(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], *, validate: bool
    ) -> TrainingRows:
        instance: Instance = prompt["instance"]
        step: int = prompt["global_steps"]
        how = self.seele.prompt
        reads_solution = not validate and (self.source.reads_solutions or self.seele.hints.gives_hints)
        encoded = encode_problem(
            self.tokenizer,
            instance.question,
            instance.steps if reads_solution else (),
            how.template,
            how.chat,
            hint_request=None if validate else self.seele.hints.user_request,
            tiers=() if validate else instance.tiers,
        )
        prompt_ids = encoded.prompt_ids
        if self.seele.hints.refresh != "never":
            instance = _within(instance, encoded, self.config.data.max_prompt_length)
        model_version = -1
        skipped = prompt.get("repeat", 0) * self.seele.hints.rollouts_per_prompt
        milestones: tuple[Milestone, ...] = ()
        if validate:
            instance = dataclasses.replace(instance, milestones=None)
        elif self.walks:
            milestones = milestones_of(instance)
            instance = dataclasses.replace(instance, milestones=milestones)

        async def sample(
            *, hint_steps: int, round_index: int, first_rollout: int, num_rollouts: int, quorum: int
        ) -> AsyncGenerator[dict[int, Completion], None]:
            nonlocal model_version
            start = time.perf_counter()
            before_ids = encoded.before_response(hint_steps)
            in_response = not validate and self.source.in_response
            request: dict[str, Any] = {
                "prompt_ids": before_ids,
                "sampling_params": sampling_params,
                "max_tokens": self.rollout_config.response_length
                - (len(before_ids) - len(prompt_ids) if in_response else 0),
                "seeds": [
                    rollout_seed(
                        self.seele.seed,
                        -1 - step if validate else step,
                        instance.instance_id,
                        round_index,
                        rollout,
                    )
                    for rollout in range(skipped + first_rollout, skipped + first_rollout + num_rollouts)
                ],
            }
            watches: list[ErrorWatch | None] = [None] * num_rollouts
            if milestones and prompt["stops"]:
                # The problem's first rollout is never stopped, whatever it writes; any round may be the only
                # one that is kept where rounds that fail are thrown away.
                may_be_first = round_index == 0 or self.seele.hints.when == "until_success"
                first_watched = int(first_rollout == 0 and may_be_first)
                for position in range(first_watched, num_rollouts):
                    watches[position] = self._watch(instance, hint_steps)
                # The cache's key includes the watch: under another one, responses end elsewhere.
                request["watch"] = {"from": first_watched, **(watches[-1].to_json() if watches[-1] else {})}
            cache = None if validate else self.cache
            kept = cache.find(step, request) if cache else None
            sampled = (
                self._sample(
                    request,
                    session_id=prompt["uid"],
                    quorum=quorum,
                    stop=self.stop if validate else (),
                    watches=watches,
                )
                if kept is None
                else _one_by_one(kept)
            )
            found = []
            async with aclosing(sampled) as parts:
                async for completions, model_version in parts:
                    with suppress(OSError):  # a full disk does not end a rollout
                        show_life(Path(self.config.trainer.default_local_dir))
                    if not validate:
                        self.controller.count_tokens(
                            round_index,
                            prompt=len(completions) * len(before_ids),
                            cached=sum(each.cached_prompt_tokens for each in completions.values()),
                            generated=sum(len(each.token_ids) for each in completions.values()),
                            from_cache=kept is not None,
                        )
                    found.append((completions, model_version))
                    yield completions
            if cache and kept is None:
                cache.keep(step, request, found)
            if not validate:
                self.controller.time_round(round_index, time.perf_counter() - start)

        if validate:
            rollouts = await run_rounds(
                instance,
                controller=NoHintController(),
                sample=sample,
                grade=self._grade,
                round_sizes=(self.rollout_config.val_kwargs.n,),
            )
            return validation_rows(
                prompt["uid"],
                instance,
                rollouts,
                prompt_ids=prompt_ids,
                data_source=prompt["data_source"],
                model_version=model_version,
                global_step=step,
            )
        replayed: Success | None = prompt.get("replayed")
        given = self._given(instance, encoded, replayed.completion if replayed else None)
        hints = self.seele.hints
        first, *others = hints.sizes_of_rounds
        run = partial(run_rounds, quorum=hints.round_quorum)
        if hints.when == "rescue":
            run = partial(run_with_rescue, failing_accuracy=hints.failing_accuracy)
        elif hints.when == "until_success":
            run = partial(
                run_until_success,
                failing_accuracy=hints.failing_accuracy,
                passing_accuracy=hints.passing_accuracy,
            )
        rollouts = await run(
            instance,
            controller=self.controller,
            sample=sample,
            grade=self._grade,
            # Supplied responses replace rollouts of the only round.
            round_sizes=(first - len(given), *others),
            succeeded=attrgetter("passed_next") if self.steers_on_milestones else is_correct,
        )
        rollouts += await append_supplied_rollouts(
            given,
            instance,
            first_index=len(rollouts),
            origin=self.source.origin,
            grade=self._grade,
            hint_steps=replayed.hint_steps if replayed else 0,
        )
        penalties = tuple(self._penalty(rollout, encoded) for rollout in rollouts)
        visit = Visit(
            instance=instance,
            step=step,
            prompt_tokens=len(prompt_ids),
            step_tokens=encoded.tokens_by_step,
            rollouts=tuple(rollouts),
            penalties=penalties,
        )
        await self.controller.keep_visit(prompt["uid"], visit)
        group = group_of(
            instance.instance_id,
            rollouts,
            penalties=penalties,
            target_accuracy=self.seele.hints.target_accuracy,
        )
        return training_rows(
            prompt["uid"],
            instance,
            rollouts,
            encoded=encoded,
            model_version=model_version,
            global_step=step,
            terms=self.terms,
            source=self.source,
            rewards=group.rewards_G.tolist(),
            advantages=group_advantages(group, source=self.source, baseline=self.baseline)
            if self.estimates_advantages
            else None,
            tells_accuracy=bool(self.config.algorithm.filter_groups.enable),
        )

    def _given(
        self, instance: Instance, encoded: EncodedProblem, replayed: Completion | None
    ) -> list[Completion]:
        """Return the group's supplied responses, which are not generated.

        Raises:
            PluginError: A user's own source raised, or what it returned is not a response.
        """
        asked = f"given, problem {instance.instance_id!r}"
        with blame(self.source, asked, key=SOURCE):
            given = self.source.given(instance, encoded, self.tokenizer, replayed=replayed)
            most = self.seele.hints.sizes_of_rounds[0] - 1
            if len(given) > most:
                raise ValueError(f"got {len(given)} responses, at most {most} allowed: one must be generated")
            for each in given:
                if not 0 < len(each.token_ids) == len(each.log_probs):
                    raise ValueError(
                        f"got {len(each.token_ids)} tokens with {len(each.log_probs)} log-probabilities; "
                        "a response needs at least one token, and as many log-probabilities"
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

    async def _sample(
        self,
        request: Mapping[str, Any],
        *,
        session_id: str,
        quorum: int,
        stop: tuple[str, ...],
        watches: Sequence[ErrorWatch | None],
    ) -> AsyncGenerator[tuple[dict[int, Completion], int], None]:
        """Yield one completion per seed, by position, and the step whose weights generated them; in parts, as
        ``generate_round`` does.
        """
        seeds, max_tokens = request["seeds"], request["max_tokens"]
        missing = dict(enumerate(seeds))
        held: dict[int, Completion] = {}  # completions of a part that had empty ones, too
        # Marks such as <|im_end|> are special tokens, which vLLM would omit from the text that it
        # searches.
        ends = {"stop": list(stop), "skip_special_tokens": False} if stop else {}
        for attempt in range(1, MAX_ATTEMPTS + 1):
            positions = [*missing]
            generated = generate_round(
                self.llm_client,
                session_id=session_id,
                # Unique: the engine may still be busy with an earlier request, of a worker that died.
                request_id=f"{session_id}-{seeds[0]}-{attempt}-{uuid.uuid4().hex}",
                prompt_ids=request["prompt_ids"],
                sampling_params=[
                    {
                        **request["sampling_params"],
                        **ends,
                        **_watched(watches[position]),
                        "max_tokens": max_tokens,
                        "seed": seed,
                    }
                    for position, seed in missing.items()
                ],
                quorum=max(quorum - len(held), 1) if len(missing) + len(held) == len(seeds) else len(missing),
            )
            try:
                async with aclosing(generated) as parts:
                    async for part in parts:
                        for index, output in part.items():
                            if output.token_ids:
                                position = positions[index]
                                held[position] = self._completion(output, max_tokens, stop, watches[position])
                                del missing[position]
                        if not all(output.token_ids for output in part.values()):
                            break
                        completions, held = held, {}
                        yield completions, next(iter(part.values())).extra_fields["global_steps"]
            except ray.exceptions.RayError:
                if attempt == MAX_ATTEMPTS:
                    raise
                logger.warning("generation failed, attempt %d of %d", attempt, MAX_ATTEMPTS, exc_info=True)
            if not missing:
                return
        raise RuntimeError(f"the engine returned empty completions {MAX_ATTEMPTS} times (aborted requests)")

    def _completion(
        self, output: TokenOutput, max_tokens: int, stop: tuple[str, ...], watch: ErrorWatch | None
    ) -> Completion:
        token_ids = list(output.token_ids)
        text, finish = self._decode(token_ids), self._finish(token_ids, max_tokens)
        if stop:
            whole = self.tokenizer.decode(token_ids, skip_special_tokens=False)
            if (before := text_before_stop(whole, stop)) != whole:
                text, finish = before, Finish.STOP
        # The engine writes the end-of-text token after the line with the error.
        if watch and watch.finds_error(text):
            token_ids = token_ids[: token_counts([watch.chars_read], token_ids, self._decode)[0]]
            text, finish = self._decode(token_ids), Finish.FLAGGED
        return Completion(
            text=text,
            token_ids=tuple(token_ids),
            log_probs=tuple(output.log_probs or ())[: len(token_ids)],
            finish=finish,
            cached_prompt_tokens=output.extra_fields.get("num_cached_tokens") or 0,
        )

    def _decode(self, token_ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(token_ids, skip_special_tokens=True)
        return text

    def _finish(self, token_ids: list[int], max_tokens: int) -> Finish:
        # verl's server reports a response that hit the length limit as "completed".
        full = len(token_ids) >= max_tokens
        return Finish.LENGTH if full and token_ids[-1] != self.tokenizer.eos_token_id else Finish.STOP

    async def _grade(self, completion: Completion, instance: Instance, *, hint_steps: int) -> Grade:
        grade = await self._verdict(completion, instance, hint_steps=hint_steps)
        if not (self.walks and instance.milestones):
            return grade
        walk = partial(
            find_walk(self.seele.credit.walk),
            instance.milestones,
            completion.text,
            shown=_num_shown(instance, hint_steps),
            hint=self._hint_before(instance, hint_steps),
        )
        seen = walk(correct=grade.correct)
        # Only a right answer can excuse an error.
        unaware = walk(correct=None) if grade.correct else seen
        is_flagged = unaware.first_error is not None
        if grade.correct and self.seele.credit.stop and not is_flagged:
            # Stopping does not wait for a line that takes the one before back.
            is_flagged = self._watch(instance, hint_steps).finds_error(completion.text)
        return dataclasses.replace(
            grade, walk=in_tokens(seen, completion.token_ids, self._decode), is_flagged=is_flagged
        )

    def _watch(self, instance: Instance, hint_steps: int) -> ErrorWatch:
        """Return a watch at the beginning of a response to a problem with milestones."""
        return ErrorWatch(
            instance.milestones or (),
            shown=_num_shown(instance, hint_steps),
            walk=self.seele.credit.walk,
            hint=self._hint_before(instance, hint_steps),
        )

    def _hint_before(self, instance: Instance, hint_steps: int) -> str:
        """Return the hint that a response continues; empty where the user's turn has it."""
        return "" if self.seele.hints.user_request else instance.hint(hint_steps)

    async def _verdict(self, completion: Completion, instance: Instance, *, hint_steps: int) -> Grade:
        if self.seele.reward.truncated_is_wrong and completion.finish is Finish.LENGTH:
            return Grade(False, GradeReason.TRUNCATED)
        if completion.finish is Finish.FLAGGED:
            return Grade(False, GradeReason.WRONG)
        text: str | None = completion.text
        if self.seele.reward.after_thinking:
            text = text_after_thinking(completion.text, begun=self.begins_thinking)
        grade = await self.grader.grade_rollout(text or "", instance, hint_steps=hint_steps)
        if isinstance(self.grader, FunctionGrader):
            return grade
        return reward_form(grade, self.seele.reward.format_score)


def _watched(watch: ErrorWatch | None) -> dict[str, Any]:
    """Return the sampling parameters that end a response at its first error (``engine/stopping.py``)."""
    return {} if watch is None else {"extra_args": {WATCH: watch.to_json()}}


def _within(instance: Instance, encoded: EncodedProblem, limit: int) -> Instance:
    """Return the problem without hints that do not fit: the policy's own solutions were not checked yet."""
    lengths = accumulate(encoded.tokens_by_step, initial=len(encoded.prompt_ids))
    legal = islice(lengths, len(instance.legal_hint_ratios))
    fitting = takewhile(lambda length: length <= limit, legal)
    return dataclasses.replace(instance, longest_hint=max(sum(1 for _ in fitting) - 1, 0))


def _num_shown(instance: Instance, hint_steps: int) -> int:
    """Return how many of a problem's milestones the first steps of its solution state."""
    return num_shown(instance.milestones or (), len(instance.hint(hint_steps)))


async def _one_by_one(parts: Sequence[Part]) -> AsyncGenerator[Part, None]:
    for part in parts:
        yield part
