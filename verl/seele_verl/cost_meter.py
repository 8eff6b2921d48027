"""What a step's update costs: tokens counted three ways, and FLOPs. docs/metrics.md has the definitions."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from seele.config import SeeleConfig
from seele.maths.model_shapes import model_flops
from seele.methods.sources.source import OffPolicySource
from seele.records import Visit
from seele.rollout.metrics import packed_tokens, teacher_forced_tokens, tokens_by_round
from seele_verl.protocol import parse_row_key
from seele_verl.runs.card import count_critic_parameters, count_parameters
from seele_verl.self_distillation import extra_teacher_tokens
from seele_verl.step_record import StepRecord


class CostMeter:
    """Counts what the steps of one run cost.

    Args:
        config: The composed configuration.
        seele: Its ``seele`` block.
        source: The run's source of off-policy tokens.
        has_critic: Whether a critic is trained too.
    """

    def __init__(
        self, config: DictConfig, seele: SeeleConfig, source: OffPolicySource, *, has_critic: bool
    ) -> None:
        model, actor = config.actor_rollout_ref.model, config.actor_rollout_ref.actor
        self.parameters = count_parameters(model.path, trust_remote_code=model.trust_remote_code)
        self.epochs: int = actor.ppo_epochs
        # One pass a step for old log-probabilities where the engine's do not serve, and one for a KL term.
        self.passes = (not config.algorithm.rollout_correction.bypass_mode) + actor.use_kl_loss
        self.critic_parameters, self.critic_epochs = 0, 0
        if has_critic:
            model, self.critic_epochs = config.critic.model, config.critic.ppo_epochs
            self.critic_parameters = count_critic_parameters(
                model.path, trust_remote_code=model.trust_remote_code
            )
        self.learns_hints = bool(seele.imitation.coefficient) or source.in_response
        self.learns_hint_once_a_round = source.in_response and source.has_own_loss
        self.continues_hints = seele.hints.user_request is None

    def metrics(self, step: StepRecord, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        """Return the step's tokens and FLOPs, in all and for each round.

        Args:
            step: What the step did.
            rows: Tags of the update's rows, by key, without padding rows.
        """
        sampled = step.controller_metrics
        trained = [step.visits[uid] for uid in dict.fromkeys(parse_row_key(key)[0] for key in rows)]
        times = self.epochs * step.updates
        of_solutions = sum(len(each.response_ids) for each in step.solutions)
        of_their_rows = of_solutions + sum(len(each.prompt_ids) for each in step.solutions)
        given = teacher_forced_tokens(
            trained, learns_hints=self.learns_hints, once_a_round=self.learns_hint_once_a_round
        )
        packed = self._packed(step.visits, rows)
        informative = self._packed(
            step.visits, {key: tag for key, tag in rows.items() if key in step.informative}
        )
        metrics: dict[str, float] = {
            "tokens/teacher_forced": given * step.updates + of_solutions,
            "tokens/trained_packed": packed * times + of_their_rows,
            "tokens/trained_informative": informative * times + of_their_rows,
        }
        of_round = {f"_round_{index}": count for index, count in tokens_by_round(trained).items()}
        in_rows = {"": sum(tag["prompt_len"] + tag["response_len"] for tag in rows.values())} | of_round
        by_teacher = extra_teacher_tokens(step.visits, step.teacher_prompts)
        of_teacher = {f"_round_{index}": count for index, count in by_teacher.items()}
        of_teacher[""] = sum(by_teacher.values())
        generated = {name for name in sampled if name.startswith("tokens/generated")}
        for of in sorted(in_rows.keys() | {name.removeprefix("tokens/generated") for name in generated}):
            count = in_rows.get(of, 0)
            # Supplied responses of a group count in round 0, and so does what a supervised update learns.
            metrics[f"tokens/trained{of}"] = count * times + of_their_rows * (of in ("", "_round_0"))
            metrics[f"flops{of}"] = model_flops(
                self.parameters,
                prefilled_tokens=sampled.get(f"tokens/prefilled{of}", 0),
                generated_tokens=sampled.get(f"tokens/generated{of}", 0),
                trained_tokens=metrics[f"tokens/trained{of}"],
                scored_tokens=count * self.passes + of_teacher.get(of, 0),
            )
            if self.critic_parameters:
                metrics[f"tokens/critic_trained{of}"] = count * self.critic_epochs
                metrics[f"flops{of}"] += model_flops(
                    self.critic_parameters,
                    prefilled_tokens=0,
                    generated_tokens=0,
                    trained_tokens=count * self.critic_epochs,
                    scored_tokens=count,  # once a step, for the values
                )
        return metrics

    def _packed(self, visits: Mapping[str, Visit], rows: Mapping[str, Mapping[str, Any]]) -> int:
        """Return the tokens of these rows, with what a group's rows begin with counted once.

        Where a longer hint does not begin with a shorter one's tokens, rows with the same hint form a group.
        """
        hint_steps = {
            (uid, rollout.rollout_index): rollout.hint_steps
            for uid, visit in visits.items()
            for rollout in visit.rollouts
            if not self.continues_hints
        }
        lengths = []
        for key, tag in rows.items():
            uid, rollout_index = parse_row_key(key)
            group = f"{uid} {hint_steps.get((uid, rollout_index), 0)}"
            lengths.append((group, tag["prompt_len"], tag["response_len"]))
        return packed_tokens(lengths)
