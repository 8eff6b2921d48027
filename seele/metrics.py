"""What every metric of a run is; docs/metrics.md is generated from here (scripts/docs_metrics.py).

``N`` stands for a round (from 0), ``SPLIT`` for ``<data set>/<file>``, such as ``chains/heldout``, and
``*`` for a family of names.
"""

import re
from functools import cache

METRICS: dict[str, dict[str, str]] = {
    "Steps and validation": {
        "step": "training step; 0 is the validation before training",
        "val/accuracy/SPLIT": (
            "un-hinted accuracy of a validation file, and with `seele.data.validated_training_problems=64` "
            "of this number of training problems under the training file's name, under "
            "`actor_rollout_ref.rollout.val_kwargs` (greedy by default); only on steps that validate. "
            "Supervised training is validated after its last step; trackers get it as a run `NAME-accuracy` "
            "([sft.md](methods/sft.md))"
        ),
        "val/no_answer_share/SPLIT, val/truncated_share/SPLIT": (
            "share of a validation file's responses in which the grader finds no answer, and that hit the "
            "length limit ([evaluation.md](evaluation.md#format-is-not-knowledge))"
        ),
        "validation/missing_responses": (
            "responses that a validation lacks because generation failed for good; the step then has no "
            "`val/` metrics"
        ),
    },
    "Rollouts and their accuracy": {
        "accuracy/mean": (
            "mean accuracy over the hints of a step: the rollouts of one problem and round under one hint "
            "count as one, probes left out; includes what the update leaves out"
        ),
        "accuracy/round_N": "the same for round N",
        "accuracy/off_policy": (
            "share of the rows that were given to groups, worked solutions or earlier successes, which the "
            "grader finds correct; only on steps that have such"
        ),
        "accuracy/probes": (
            "mean accuracy of the rollouts that were given no hint on purpose; only where the controller "
            "probes"
        ),
        "rounds/all_same_share": (
            "share of hints whose rollouts, of one problem and round, all agree: they carry no signal of "
            "their own; of hints that at least two rollouts have"
        ),
        "rounds/mean_a_1_minus_a": (
            "mean over these hints of n/(n-1) a(1 - a), the unbiased estimate of what `seele simulate` "
            "ranks controllers by and the paper's bound on a step's gain is proportional to; the true value "
            "is at most 0.25"
        ),
        "rounds/mean_distance": (
            "mean over these hints of the distance of the observed accuracy from 1/2; few rollouts make it "
            "larger than the true one"
        ),
        "group/on_policy, group/off_policy, group/hinted": (
            "what a problem's rows are, mean over problems: rollouts that the policy wrote, rows that it "
            "was given (worked solution, earlier success), and rollouts with a hint, which are among the "
            "first"
        ),
        "prompts/nonzero_variance_share": (
            "share of problems whose own rollouts, probes included, do not all agree when all rounds are "
            "taken together; the others have pooled advantages of zero, unless a given row is right and all "
            "their rollouts are wrong"
        ),
        "prompts/variance_between_hints": (
            "share of that pooled reward variance that lies between hints, and so says nothing about what "
            "the policy did; estimated without bias from hints that at least two rollouts have, hence "
            "sometimes a little below zero"
        ),
        "rollout/truncated_share": (
            "share of rollouts that hit the length limit, among those that were not stopped at an error"
        ),
        "rollout/mean_response_tokens": "generated tokens per rollout",
        "rollout/thrown_away_share": (
            "share of the generated rollouts whose round failed, or was too easy with its hint, and was "
            "rolled out again (`seele.hints.when=until_success`); in no other metric but tokens, FLOPs and "
            "seconds; only on steps with such rounds"
        ),
        "rollout/dropped_prompts": "problems left out of the step because generation failed for good",
        "rollout/left_behind_problems": (
            "problems that were begun and cut when the step had enough; they begin again in the next one "
            "(`seele.curriculum.spare_problems`)"
        ),
    },
    "Hints and controllers": {
        "hint_ratio/mean, hint_ratio/p10, hint_ratio/p50, hint_ratio/p90": (
            "hint ratio over the hints of a step, as for `accuracy/mean`"
        ),
        "hint_ratio/round_N": "mean hint ratio of round N",
        "hints/reliance": (
            "mean over right hinted responses, 64 at most, of the mean over their tokens of log pi(y given "
            "q) - log pi(y given q and hint), with the policy before the update: below 0, they would "
            "be less likely without the hint (HiLL, arXiv:2604.00698). Near 0, what is practised with hints "
            "carries over. Only on steps that validate, and not where hints are part of the response "
            "(`prefix_rft`, `trapo`)"
        ),
        "starts/question, starts/first_third, starts/middle_third, starts/last_third": (
            "share of the rollouts that begin without a hint, or in that third of the solution; they add up "
            "to 1; only on steps with hints, and only with `seele.hints.placement=assistant`"
        ),
        "practised/first_third, practised/middle_third, practised/last_third": (
            "how much of that third of the solutions the policy's rollouts had to write by themselves, in "
            "[0, 1]; on the same steps. Hints begin at the front, so the last third is practised most"
        ),
        "controller/ms_per_proposal": (
            "milliseconds that the controller took for a round's hint, on average over the step"
        ),
        "controller/*": (
            "what the controller itself reports. `paper`: `fits`, `failed_fits`, `stored_rates`, "
            "`open_visits`, counted since the run began. `bayes`: `problems` and `open_visits`; "
            "`expected_unhinted_accuracy`, `solved_share`, `unlearnable_share` over the problems seen; "
            "`drift_mean`, `drift_sd` of the policy's ability between two visits, in units of hint ratio; "
            "`hint_cap`, `probe_accuracy`. `robbins_monro`, `bisect`: `problems`, `mean_rate`, "
            "`mean_width`. `uniform`, `uft`, `prefix_rft`: `problems`, `visits`, `chunk_probability`, "
            "`smallest_prefix`. `adaback`, `mfc`, `adaprefix`: `problems`, `visits`, `mean_rate`. "
            "`next_milestone`: `problems`, `open_visits`. `prefix_rl`, `each`: `problems`, `visits`. With "
            "any `seele.hints.when` but `always`: `failed_share` of the first rounds, since the run began"
        ),
        "hints/own_solutions": "problems whose solution is the policy's own (`seele.hints.refresh=epoch`)",
    },
    "Rewards": {
        "reward/ungraded_share": (
            "share of rollouts that the grader came to no verdict on (time, memory, length, depth, crash, "
            "error); they count as wrong"
        ),
        "reward/no_answer_share": (
            r"share of rollouts without `\boxed{}`, among those that were not stopped at an error; under "
            "`seele.reward.truncated_is_wrong` truncated ones are not looked at"
        ),
        "reward/malformed_share": (
            "share of rollouts with another kind of answer than the task asks for; only the checkers of the "
            "reasoning tasks tell (`docs/reasoning.md`)"
        ),
        "reward/format_share": (
            "share of rollouts that are wrong and earn something all the same: `seele.reward.format_score` "
            "for their form, or part of an own function's reward"
        ),
        "reward/mean": (
            "mean reward of the rollouts, that score included and penalties left out; accuracies never "
            "include it"
        ),
        "reward/NAME": (
            "mean of the further number NAME of your own reward function, over the rollouts that have it "
            "([grading.md](grading.md#your-own-reward))"
        ),
    },
    "Curriculum, selection and replay": {
        "curriculum/*": (
            "`uniform`, `ordered`: `epoch`; `sec`: `q/ARM`, `probability/ARM`, `drawn/ARM` "
            "(`docs/curriculum.md`)"
        ),
        "selection/*": (
            "`lze`: `energy_mean`, `energy_max`, `energy_min`, `pass_rate_mean`, `selected_groups`, "
            "`selected_ratio`, `target_ratio`, `dead_group_share` (`docs/selection.md`)"
        ),
        "pruning/pruned_problems, pruning/replayed_problems": (
            "problems that the epoch leaves out, and pruned ones that it tries again; only with "
            "`seele.selection.prune_after`"
        ),
        "replay/problems, replay/retired, replay/is_open": (
            "`exgrpo`: problems in the pool of earlier successes, problems that left it for good, and "
            "whether it is open (0 or 1)"
        ),
        "successes/problems, successes/hinted": (
            "`replay=successes`: problems with a success to replay, and those of which it stands behind a "
            "hint"
        ),
        "interleave/failed, interleave/waiting": (
            "problems with a worked solution and no right rollout in this step, and the number that wait "
            "for a supervised update; these rows only with `seele.interleave.problems` "
            "([relift](methods/relift.md))"
        ),
        "interleave/learnt": "problems of the step's supervised update, 0 where there was none",
        "interleave/loss, interleave/grad_norm": (
            "the negative log-likelihood of their solutions before it, a mean over tokens, and the norm of "
            "its gradient before clipping; only on steps with such an update"
        ),
    },
    "Milestones": {
        "milestones/passed_share, milestones/segments_per_rollout": (
            "share of the step's segments that passed, and how many a rollout has; these rows only with "
            "credit by milestones or stopping ([milestones](methods/milestones.md))"
        ),
        "milestones/flagged_share": (
            "share of rollouts in which the walk finds a sure error without knowing the grade; with "
            "stopping, also a right one that would have been stopped"
        ),
        "milestones/false_alarms, milestones/right_and_unstopped": (
            "of the rollouts with a right answer that could not be stopped, the share that is flagged, and "
            "their number; since the run began"
        ),
        "milestones/stops": (
            "1 while rollouts are stopped, 0 once `seele.credit.stop_below` has ended it or where it is off"
        ),
    },
    "Cost": {
        "tokens/prompt": (
            "tokens of prompts and hints sent to the engine for training rollouts, those of problems that "
            "the step dropped or left behind included; a request that was aborted counts for nothing"
        ),
        "tokens/prefilled": "the part of them that the engine computed; the rest was in its prefix cache",
        "tokens/generated": "tokens generated in the same rollouts",
        "tokens/from_cache, tokens/from_cache_round_N": (
            "the part of the generated ones that `seele.rollout_cache` gave back (`docs/debugging.md`); "
            "only in steps that have such"
        ),
        "tokens/trained": (
            "tokens of the sequences that went through the update, and once through a supervised update "
            "between steps, prompts included in every row, times `ppo_epochs`, also where "
            "`seele.packed_updates` computes them once"
        ),
        "tokens/trained_packed": (
            "the same, but what rows of a group begin with, their longest prompt with its hint, counts once "
            "a group, whether or not `seele.packed_updates` is on, and however the group is divided over "
            "micro-batches, mini-batches and ranks"
        ),
        "tokens/trained_informative": (
            "`tokens/trained_packed` without uninformative rows: those in which all advantages are 0, as in "
            "a group whose rewards are all equal, and SEELE's terms mark no token. KL to the reference and "
            "entropy reach every row and do not count. With a loss term of your own every row counts"
        ),
        "tokens/critic_trained, tokens/critic_trained_round_N": (
            "`ppo`: the same for the critic's update, times `critic.ppo_epochs`; not part of "
            "`tokens/trained`, which are the policy's"
        ),
        "tokens/teacher_forced": (
            "tokens that the update learns from although they were not generated in this step: worked "
            "solutions, those of a supervised update between steps included, replayed successes, and hints "
            "where they are imitated or part of the response"
        ),
        (
            "tokens/prompt_round_N, tokens/prefilled_round_N, tokens/generated_round_N, "
            "tokens/trained_round_N, flops_round_N"
        ): (
            "what of these was spent on round N; rows that a group was given count in round 0, and so do "
            "those of a supervised update between steps"
        ),
        "rollout/seconds_round_N": (
            "seconds from when a round's rollouts under one hint were asked for until the last of them was "
            "graded, mean over problems and their hints of the round; problems run side by side, so that "
            "rounds do not add up to `timing_s/gen`"
        ),
        "flops": (
            "model FLOPs of the step (`seele/maths/model_shapes.py`): 2 per parameter and token that was "
            "prefilled or generated; 6 per token trained, and 2 per token of the batch for each pass that "
            "the step takes for old log-probabilities or KL, whatever `ppo_epochs`. Under `ppo` the "
            "critic's are added, by its own parameters: 6 per token of its update, 2 per token of the batch "
            "for the values"
        ),
        (
            "tokens/prefilled_total, tokens/generated_total, tokens/trained_total, "
            "tokens/trained_packed_total, tokens/trained_informative_total, tokens/teacher_forced_total, "
            "flops_total"
        ): "the same, summed over the run, across interruptions; in a run of two stages over both",
        "timing_s/*": (
            "seconds of the step's phases: `gen`, `old_log_prob`, `ref`, `values`, `adv`, `update_critic`, "
            "`update_actor`, `update_weights`, `save_checkpoint`, `testing`; `step` is the time of the "
            "whole step without `testing`, a little more than their sum; supervised steps have `step` and "
            "`testing` alone"
        ),
    },
    "Update": {
        "distillation/divergence": (
            "estimate of the KL divergence of the policy from the reference model that sees the solution, "
            "in nats a token (`seele.credit.name=self_distillation`)"
        ),
        "actor/pg_loss, actor/kl_loss, actor/imitation_loss, actor/off_policy_loss": (
            "surrogate, KL to the initial policy, imitation term, loss of off-policy tokens, each before "
            "its coefficient; a term of `seele.loss_terms` has its own name here"
        ),
        "critic/vf_loss": (
            "`ppo`: the critic's loss, half the squared error of the values, clipped, a mean over tokens"
        ),
        "critic/vf_explained_var": (
            "`ppo`: share of the returns' variance that the values explain, before the critic's update; "
            "below 0 where they are worse than a constant"
        ),
        "critic/values/mean, critic/values/min, critic/values/max": (
            "`ppo`: values of the response's tokens, before the critic's update"
        ),
        "actor/off_policy_probability": (
            "mean probability that the policy gives to off-policy tokens during the update"
        ),
        "actor/sft_loss": (
            "negative log-likelihood of the worked solutions, a mean over all their tokens in the step's "
            "batch; supervised training only"
        ),
        "actor/*": (
            "verl's: gradient norm, learning rate, clipped fraction, entropy. Where packed updates leave "
            "rows out, clipped fraction, entropy and KL are means over the others, and entropy and KL are "
            "absent from a step without others"
        ),
        "rollout_corr/*": (
            "verl's, engine against trainer; `rollout_is_*` are the weights of `seele.rollout_correction` "
            "(`docs/rollout_correction.md`)"
        ),
        (
            "critic/*, global_seqlen/*, num_turns/*, perf/*, prompt_length/*, response/*, response_length/*, "
            "response_length_non_aborted/*, timing_per_token_ms/*, training/*, val-aux/*, val-core/*, "
            "variance_proxy/*"
        ): "verl's own, under verl's names",
    },
}
"""The definitions, in Markdown, by topic and by the names that share one, joined by commas."""


@cache
def explain(name: str) -> str | None:
    """Return what a metric is, in Markdown; None if it is unknown."""
    for definitions in METRICS.values():
        for names, about in definitions.items():
            pattern = re.escape(names).replace("SPLIT", ".+").replace(r"\*", ".+")
            pattern = re.sub(r"_N\b", r"_(?:\\d+|N)", pattern).replace(r",\ ", "|")
            if re.fullmatch(pattern, name):
                return about
    return None
