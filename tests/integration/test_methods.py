"""Every method for a step or two on the real stack, started once (``methods_in_turn.py``)."""

import hashlib
import json
import math
from collections import defaultdict
from dataclasses import replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.controllers import end_visit, next_hint, observe
from seele.data.storage.files import read_json_lines
from seele.data.storage.schema import read_problems, write_problems
from seele.hints.next_milestone import NextMilestoneController
from seele.hints.paper import PaperController
from seele.methods import METHODS
from seele.plugins import find_part
from seele.rollout.templates import encode_prompt

EVERYTHING = (
    "method=seele curriculum=sec selection=lze seele.selection.warmup_epochs=0 seele.hints.rounds=2 "
    "seele.hints.round_quorum=0.5 seele.hints.refresh=epoch"
)
AFTER_FAILURE = (
    "method=seele seele.hints.when=after_failure seele.hints.placement=user seele.imitation.coefficient=0 "
    'seele.hints.request="{question}/{hint}" seele.hints.rounds=3 seele.hints.round_sizes=[4,2,2] '
    "seele.hints.failing_accuracy=0.25 seele.hints.dropout=0.25 seele.advantage.baseline=hinted_apart"
)
WITH_CRITIC = "method=ppo curriculum=sec"
MILESTONES = "method=milestones seele.dump_tokens=true"
OWN = Path(__file__).parent / "own_parts.py"
OWN_PARTS = (
    f"method=grpo seele.off_policy.source={OWN}:AnswerSource seele.advantage.baseline={OWN}:on_policy_mean "
    f'seele.loss_terms=[{{term:"{OWN}:FirstTokens",coefficient:0.1,settings:{{first:2}}}}]'
)
EXAMPLES = Path(__file__).parents[2] / "examples"
NEXT_MILESTONES = (
    f"{MILESTONES} seele.hints.controller=next_milestone replay=successes "
    f"seele.curriculum.name={OWN}:SameProblems seele.credit.stop_below=1 seele.reward.isolation=none "
    f"seele.reward.grader={OWN}:any_answer"
)
OWN_REWARD = (
    "method=seele seele.hints.rounds=2 seele.reward.correct_from=0.5 "
    f"seele.reward.grader={EXAMPLES}/own_reward/reward.py:compute_score +seele.reward.kwargs.most=0.3"
)
JUDGE = (
    "method=drgrpo seele.reward.correct_from=0.8 seele.reward.isolation=none "
    "seele.reward.num_workers=8 seele.reward.time_limit_s=60 "
    f"seele.reward.grader={EXAMPLES}/llm_judge/judge.py:compute_score"
)
REQUEST = 'seele.hints.request="{question}/{hint}"'
SCAF_GRPO = (
    f"method=scaf_grpo seele.hints.settings.warmup_steps=0 {REQUEST} seele.reward.isolation=none "
    f"seele.reward.grader={OWN}:second_tier_helps"
)
THROW_AWAY = ("ghpo", "sage", "bread", "scaf_grpo")
"""Methods that roll a problem out again if it fails."""
GIVEN = ("luffy", "rl_sft_loss", "exgrpo", "own parts", "next milestones")
"""Methods whose groups hold responses that no round generated."""
WITHOUT_KL = ("rloo", "drgrpo", "gspo", "cispo", "asymre", "opmd", "judge", "ghpo", "sage", "relift")
"""Methods whose update leaves uninformative rows out."""
TURNS = {
    "opsd": ['method=opsd seele.credit.request="{question}/{hint}"'],
    "ppo": [WITH_CRITIC] * 2,
    # Early, because a rollout that guesses right behind an error changes its group's baseline.
    "milestones": [MILESTONES] * 2,
    "ppo without sec": ["method=ppo curriculum=uniform"],
    "grpo": ["method=grpo seele.credit.stop=true seele.dump_tokens=true"],
    "rloo": ["method=rloo"],
    "drgrpo": ["method=drgrpo curriculum=ordered"],
    "gspo": ["method=gspo"],
    "cispo": ["method=cispo"],
    "luffy": ["method=luffy seele.selection.prune_after=1"],
    "rl_sft_loss": ["method=rl_sft_loss"],
    "uft": ["method=uft"],
    "prefix_rft": ["method=prefix_rft"],
    "exgrpo": ["method=exgrpo seele.replay.start_accuracy=0"] * 2,
    "seele_paper": ["method=seele_paper seele.hints.rounds=2"],
    "asymre": ["method=asymre"],
    "opmd": ["method=opmd"],
    "adaback": ["method=adaback"],
    "adaprefix": ["method=adaprefix"],
    "prefix_rl": ["method=prefix_rl"],
    "trapo": ["method=trapo"] * 2,
    "mfc": [f"method=mfc {REQUEST}"],
    "adhint": ["method=adhint"],
    "ghpo": [f"method=ghpo {REQUEST}"],
    "sage": [f"method=sage {REQUEST}"],
    "bread": ["method=bread"],
    "scaf_grpo": [SCAF_GRPO],
    "relift": ["method=relift seele.interleave.problems=2"] * 2,
    "after failure": [AFTER_FAILURE],
    "own parts": [OWN_PARTS],
    "seele": [EVERYTHING] * 2,
    "own reward": [OWN_REWARD],
    "judge": [JUDGE],
    "next milestones": [NEXT_MILESTONES] * 2,
    "selected milestones": [f"{MILESTONES} selection=lze seele.selection.warmup_epochs=0"],
    # It rolls out until enough groups disagree, which they do once the policy is right more often.
    "dapo": ["method=dapo"],
}
"""Method -> the overrides of its steps."""
SAVED_WITH_CREDIT = 1 + [turn for turns in TURNS.values() for turn in turns].index(MILESTONES)
"""Step of a checkpoint: the first of two in a row with credit by milestones."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("methods") / "run"


@pytest.fixture(scope="module")
def judge():
    """A server whose scores depend only on the responses' texts."""
    doubles = spec_from_file_location("doubles", Path(__file__).parents[1] / "unit" / "conftest.py")
    module = module_from_spec(doubles)
    doubles.loader.exec_module(module)

    def verdict(prompt: str, seed: int | None) -> str:
        return f"Hm. Score: {hashlib.sha256(prompt.encode()).digest()[0] % 11}"

    stand_in = module.StandInServer(verdict)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGE_URL", stand_in.url)
        patch.setenv("JUDGE_MODEL", "stand-in")
        yield stand_in
    stand_in.close()


@pytest.fixture(scope="module")
def tiered(problems, tmp_path_factory) -> Path:
    """The training problems, with up to two tiers each."""
    file = tmp_path_factory.mktemp("problems") / "train.parquet"
    instances = (
        replace(each, tiers=each.steps[:-1][:2]) for each in read_problems(problems / "train.parquet")
    )
    write_problems(file, instances, split="train")
    return file


@pytest.fixture(scope="module")
def common(problems, tiered, base_model) -> list[str]:
    """Overrides of all steps."""
    return [
        f"seele.callbacks=[{OWN}:Counter]",
        *("method=grpo", "hardware=cpu", "job=tiny", f"actor_rollout_ref.model.path={base_model}"),
        f"data.train_files=[{tiered}]",
        f"data.val_files=[{problems}/heldout.parquet]",
        *("data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=4"),
        "seele.hints.rollouts_per_prompt=8",
        *("trainer.save_freq=2", "trainer.test_freq=-1", "trainer.val_before_train=false"),
    ]


@pytest.fixture(scope="module")
def steps(run, common, judge, finish, python) -> dict[str, list[tuple[dict, list[dict]]]]:
    """Method -> metrics and rollouts of each of its steps."""
    turns = [turn for turns in TURNS.values() for turn in turns]
    script = Path(__file__).parent / "methods_in_turn.py"
    # The last checkpoint that a test reads.
    turns[SAVED_WITH_CREDIT + 1 :] = [
        f"{turn} trainer.save_freq=-1" for turn in turns[SAVED_WITH_CREDIT + 1 :]
    ]
    finish([python, str(script), str(run), *turns, "--", *common], log=run / "logs" / "train.log")
    metrics = [row for _, row in read_json_lines(run / "metrics.jsonl")]
    assert [line["step"] for line in metrics] == list(range(1, len(turns) + 1))
    left = iter(metrics)
    return {
        method: [
            (line, [row for _, row in read_json_lines(run / "rollouts" / f"step_{line['step']}.jsonl")])
            for _, line in zip(of_method, left, strict=False)
        ]
        for method, of_method in TURNS.items()
    }


def groups_of(rows: list[dict]) -> dict[str, list[dict]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row["instance_id"]].append(row)
    return groups


def test_every_method_has_a_turn():
    words = (word for turns in TURNS.values() for turn in turns for word in turn.split())
    named = {word.removeprefix("method=") for word in words if word.startswith("method=")}
    # Supervised methods have no rollouts, and pope is grpo on another file.
    assert named == METHODS.keys() - {"sft", "sft_rl", "pope"}


def test_every_method_updates_the_policy(steps):
    for method, of_method in steps.items():
        for line, _ in of_method:
            # On another processor, the policy may produce no group that disagrees.
            assert line["actor/grad_norm"] > 0 or not line["prompts/nonzero_variance_share"], method
            assert line["tokens/generated"] > 0 and line["flops"] > 0, method


def test_what_the_rounds_cost_is_what_the_step_cost(steps):
    costs = ("tokens/prompt", "tokens/prefilled", "tokens/generated", "tokens/trained", "flops")
    for method, of_method in steps.items():
        for line, rows in of_method:
            rounds = [index for index in range(4) if f"tokens/generated_round_{index}" in line]
            for cost in costs:
                assert sum(line[f"{cost}_round_{index}"] for index in rounds) == line[cost], (method, cost)
            for index in rounds:
                kept = sum(row["generated_tokens"] for row in rows if row["round"] == index)
                generated = line[f"tokens/generated_round_{index}"]
                assert generated >= kept, method
                assert generated == kept or method in THROW_AWAY, method
                assert 0 < line[f"rollout/seconds_round_{index}"] < line["timing_s/gen"], method


def test_trained_tokens_are_counted_in_three_ways(steps):
    for method, of_method in steps.items():
        for line, rows in of_method:
            trained, packed, informative = (
                line[f"tokens/trained{kind}"] for kind in ("", "_packed", "_informative")
            )
            assert 0 <= informative <= packed < trained, method
            assert informative or not line["prompts/nonzero_variance_share"], method
            if method in WITHOUT_KL and informative:  # else there is no update
                assert math.isfinite(line["actor/entropy_loss"]), method
            if method == "own parts":
                assert informative == packed, "its own term may learn from any row"
            if method in GIVEN or method in ("dapo", "relift"):
                continue  # a problem may begin twice, and given responses do not state their length
            trained_rows = [row for row in rows if row["advantage"] is not None]
            if method in ("after failure", "mfc", "ghpo", "sage", "scaf_grpo"):
                # The user's message differs by hint.
                trained_rows = [
                    row | {"instance_id": f"{row['instance_id']} {row['hint_steps']}"} for row in trained_rows
                ]
            assert packed == packed_tokens_of(trained_rows, in_response=method in ("prefix_rft", "trapo")), (
                method
            )
            if "milestones" in method or method in ("ppo", "ppo without sec", "prefix_rft", "trapo", "opsd"):
                continue  # a row has more than one advantage, or is learnt without one
            imitates = method in ("seele", "seele_paper", "uft", "own reward")
            left = [row for row in trained_rows if row["advantage"] or (imitates and row["hint_tokens"])]
            assert informative == packed_tokens_of(left, in_response=False), method


def packed_tokens_of(rows: list[dict], *, in_response: bool) -> int:
    prompts = [
        max(row["prompt_tokens"] + row["hint_tokens"] * (not in_response) for row in group)
        for group in groups_of(rows).values()
    ]
    responses = [row["generated_tokens"] + row["hint_tokens"] * in_response for row in rows]
    return sum(prompts) + sum(responses)


def test_the_composition_of_groups_is_the_methods(steps):
    on_off_hinted = {
        method: [
            tuple(line[f"group/{kind}"] for kind in ("on_policy", "off_policy")) for line, _ in of_method
        ]
        for method, of_method in steps.items()
    }
    for method in ("exgrpo", "next milestones"):
        assert on_off_hinted.pop(method)[0] == (8, 0), "only later steps replay"
    for method in ("luffy", "rl_sft_loss", "own parts"):
        assert on_off_hinted.pop(method) == [(7, 1)]
    assert {pair for pairs in on_off_hinted.values() for pair in pairs} == {(8, 0)}
    hinted = {method: of_method[0][0]["group/hinted"] for method, of_method in steps.items()}
    assert hinted["prefix_rft"] == 1
    hinting = {"seele", "seele_paper", "uft", "prefix_rft", "after failure", "own reward"}
    hinting |= {"trapo", "mfc", "adhint", "adaback", "adaprefix", "prefix_rl", *THROW_AWAY}
    assert all(hinted[method] == 0 for method in TURNS if method not in hinting)
    assert hinted["seele"] > 0 and hinted["seele_paper"] == 8


def test_advantages_are_those_of_the_method(steps):
    for method in ("drgrpo", "luffy", "seele_paper"):
        for group in groups_of(steps[method][0][1]).values():
            mean = sum(row["reward"] for row in group) / len(group)
            for row in group:
                assert row["advantage"] == pytest.approx(row["reward"] - mean, abs=1e-6), method
    for group in groups_of(steps["prefix_rft"][0][1]).values():
        others = [row["reward"] for row in group if not row["hint_steps"]]
        for row in group:
            baseline = 0.0 if row["hint_steps"] else sum(others) / len(others)
            assert row["advantage"] == pytest.approx(row["reward"] - baseline, abs=1e-6)


def test_hints_of_the_users_follow_failures_and_are_compared_apart(steps):
    ((line, rows),) = steps["after failure"]
    hinted = 0
    for group in groups_of(rows).values():
        by_round = [[row for row in group if row["round"] == index] for index in range(3)]
        assert len(by_round[0]) == 4 and not any(row["hint_tokens"] for row in by_round[0])
        failed = sum(row["reward"] for row in by_round[0]) <= 1
        assert [*map(len, by_round[1:])] == ([2, 2] if failed else [4, 0])
        assert failed or not any(row["hint_tokens"] for row in group)
        for has_hint in (False, True):
            kind = [row for row in group if bool(row["hint_tokens"]) == has_hint]
            hinted += has_hint * len(kind)
            mean = sum(row["reward"] for row in kind) / max(len(kind), 1)
            for row in kind:
                expected = row["reward"] - mean if len(kind) > 1 else row["reward"]
                assert row["advantage"] == pytest.approx(expected, abs=1e-6)
    assert hinted and line["group/hinted"] == hinted / 8
    assert 0 < line["controller/failed_share"] <= 1


def test_the_papers_first_hint_is_the_longest_and_the_second_follows_its_outcomes(steps):
    for name, group in groups_of(steps["seele_paper"][0][1]).items():
        controller, num_steps = PaperController(), group[0]["num_steps"]
        legal = [shown / num_steps for shown in range(num_steps)]
        assert group[0]["hint_steps"] == num_steps - 1
        for index in (0, 1):
            of_round = [row for row in group if row["round"] == index]
            hint = next_hint(controller, name, round_index=index, legal_ratios=legal)
            assert [row["hint_ratio"] for row in of_round] == [hint] * 4
            right = sum(row["reward"] for row in of_round)
            observe(controller, name, hint_ratio=hint, num_correct=int(right), num_rollouts=4)


def test_trapo_reveals_a_prefix_where_the_rounds_before_went_badly(steps):
    prefixed = 0
    for line, rows in steps["trapo"]:
        for group in groups_of(rows).values():
            rights, sizes = 0, []
            for round_index, needed in enumerate((0, 2, 4, 7)):
                of_round = [row for row in group if row["round"] == round_index]
                assert all(bool(row["hint_steps"]) == (rights < needed) for row in of_round)
                rights += sum(row["reward"] == 1 for row in of_round)
                sizes.append(len(of_round))
                prefixed += sum(bool(row["hint_steps"]) for row in of_round)
            assert sizes == [4, 2, 1, 1]
        assert line["actor/off_policy_loss"] < 0
    assert prefixed


@pytest.mark.parametrize("method", ["ghpo", "sage", "bread"])
def test_the_first_round_that_does_not_fail_is_kept(steps, method):
    ((line, rows),) = steps[method]
    last, kept, failed = 4 if method == "bread" else 3, {}, set()
    for name, group in groups_of(rows).items():
        (kept[name],) = {row["round"] for row in group}
        (steps_left,) = {row["num_steps"] - row["hint_steps"] for row in group}
        right = sum(bool(row["reward"]) for row in group)
        failed |= {name} if kept[name] or not right else set()
        assert len(group) == 8
        assert any(row["hint_tokens"] for row in group) <= (kept[name] > 0)
        if kept[name] < last and not right:
            # No longer hint is left; BREAD may have found one to be too easy.
            assert steps_left == 1 or (method == "bread" and kept[name] > 1)
        if 0 < kept[name] < last and right == 8:
            assert method != "bread" or kept[name] > 1 or steps_left == group[0]["num_steps"] - 1
    thrown = sum(kept.values())
    assert thrown and line["rollout/thrown_away_share"] == thrown / (thrown + len(kept))
    assert line["controller/failed_share"] == len(failed) / len(kept)
    assert line["tokens/generated_round_0"] > sum(row["generated_tokens"] for row in rows if not row["round"])


def test_hints_are_tiers_where_the_method_wants_them(steps, tiered):
    tiers = {each.instance_id: each.tiers for each in read_problems(tiered)}
    shown = 0
    for method in ("sage", "scaf_grpo"):
        for row in steps[method][0][1]:
            of_problem = tiers[row["instance_id"]]
            assert row["num_steps"] == len(of_problem) + 1 if of_problem else not row["hint_steps"]
            assert row["hint"] == (of_problem[row["hint_steps"] - 1] if row["hint_steps"] else "")
            shown += row["hint_steps"] > 0
    assert shown


def test_the_teacher_of_opsd_sees_the_solution_and_no_reward_is_read(run, steps, base_model, tiered):
    tokenizer = AutoTokenizer.from_pretrained(base_model)
    model = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32)
    template = yaml.safe_load((run / "resolved.yaml").read_text())["seele"]["prompt"]["template"]
    instances = {each.instance_id: each for each in read_problems(tiered)}

    def last_log_prob(question: str, text: str) -> float:
        ids = encode_prompt(tokenizer, question, template) + tokenizer.encode(text, add_special_tokens=False)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        return float(logits.log_softmax(-1)[tokenizer.eos_token_id])

    # In the very first step, policy and reference model are the base model.
    ((line, rows),) = steps["opsd"]
    ended = [row for row in rows if row["finish"] == "stop"]
    for row in ended:
        instance = instances[row["instance_id"]]
        shown = f"{instance.question}/{''.join(instance.steps).strip()}"
        expected = last_log_prob(shown, row["text"]) - last_log_prob(instance.question, row["text"])
        assert row["advantage"] == pytest.approx(expected, abs=1e-3)
    assert ended and line["distillation/divergence"] != 0


def test_scaf_grpo_replaces_one_failure_by_a_success_under_the_weakest_tier_that_helps(steps):
    ((line, rows),) = steps["scaf_grpo"]
    failed = 0
    for group in groups_of(rows).values():
        assert [row["rollout"] for row in group] == [*range(8)]
        rescues = [row for row in group if row["hint_tokens"]]
        rest_failed = not any(row["reward"] for row in group if not row["hint_tokens"])
        assert len(rescues) == rest_failed
        for row in rescues:
            assert (row["round"], row["hint_steps"], row["reward"]) == (1, 2, 1)
        failed += rest_failed
    assert failed and line["controller/failed_share"] == failed / len(groups_of(rows))
    assert line["tokens/generated_round_1"] >= sum(row["generated_tokens"] for row in rows if row["round"])


def test_relift_learns_the_solutions_of_problems_that_failed(steps, problems):
    waiting = 0
    solved = {each.instance_id for each in read_problems(problems / "train.parquet") if each.steps}
    for line, rows in steps["relift"]:
        groups = groups_of(rows)
        failed = [name for name, group in groups.items() if not any(row["reward"] for row in group)]
        assert line["interleave/failed"] == len(failed) and solved >= {*failed}
        assert line["interleave/learnt"] == 2 * (waiting + len(failed) >= 2)
        waiting += len(failed) - line["interleave/learnt"]
        assert line["interleave/waiting"] == waiting
        learnt = line["interleave/learnt"] > 0
        assert (line["tokens/teacher_forced"] > 0) == learnt == ("interleave/loss" in line)
        of_rows = sum(row["prompt_tokens"] + row["generated_tokens"] for row in rows)
        assert (line["tokens/trained"] > of_rows + line["tokens/teacher_forced"]) == learnt
        assert not learnt or (line["interleave/loss"] > 0 and line["interleave/grad_norm"] > 0)
    assert any(line["interleave/learnt"] for line, _ in steps["relift"])


def test_a_users_own_source_term_and_baseline_train(steps):
    ((line, rows),) = steps["own parts"]
    given = [row for row in rows if row["origin"] != "policy"]
    assert len(given) == 8 and all(row["reward"] == 1 for row in given), "each group is given the answer"
    for group in groups_of(rows).values():
        on_policy = [row["reward"] for row in group if row["origin"] == "policy"]
        for row in group:
            expected = row["reward"] - sum(on_policy) / len(on_policy)
            assert row["advantage"] == pytest.approx(expected, abs=1e-6)
    # The given tokens have LUFFY's loss by default; the first two tokens of each response have the term's.
    assert 0 < line["actor/off_policy_probability"] < 1
    assert line["actor/own_loss"] > 0
    # A given answer has two tokens or more.
    marked = sum(min(row["generated_tokens"] or 2, 2) for row in rows)
    assert line["actor/own_tokens"] == marked / 2, "a mean over the step's two updates"


def test_rloo_compares_a_rollout_with_the_groups_others(steps):
    for group in groups_of(steps["rloo"][0][1]).values():
        total = sum(row["reward"] for row in group)
        for row in group:
            others = (total - row["reward"]) / (len(group) - 1)
            assert row["advantage"] == pytest.approx(row["reward"] - others, abs=1e-6)


def test_a_critic_learns_and_its_curriculum_from_it(steps):
    (first, rows), (second, _) = steps["ppo"]
    assert second["critic/vf_loss"] < first["critic/vf_loss"]
    assert second["critic/vf_explained_var"] > first["critic/vf_explained_var"]
    for line in (first, second):
        assert line["critic/grad_norm"] > 0
        assert line["tokens/critic_trained"] == line["tokens/trained"]
        assert line["critic/advantages/mean"] == pytest.approx(0, abs=1e-5), "whitened over the batch"
    assert any(len({row["advantage"] for row in group}) > 2 for group in groups_of(rows).values())
    assert all(value > 0 for name, value in second.items() if name.startswith("curriculum/q/"))
    ((uniform, _),) = steps["ppo without sec"]
    assert uniform["critic/grad_norm"] > 0 and not any(name.startswith("curriculum/q/") for name in uniform)
    others = [
        line for method, of_method in steps.items() for line, _ in of_method if not method.startswith("ppo")
    ]
    assert not any("critic/vf_loss" in line or "tokens/critic_trained" in line for line in others)


def test_a_resumed_run_has_its_critic_back_bit_for_bit(run, steps, common, finish, python, tmp_path):
    saved, reloaded = run / "global_step_2", tmp_path / "reloaded"
    script = Path(__file__).parent / "saves_what_it_loaded.py"
    go_on = [
        *common,
        *WITH_CRITIC.split(),
        "trainer.total_training_steps=3",
        "trainer.max_actor_ckpt_to_keep=1",
    ]
    resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={saved}"]
    folder = f"trainer.default_local_dir={tmp_path / 'resumed'}"
    log = tmp_path / "resumed" / "logs" / "train.log"
    finish([python, str(script), str(reloaded), *go_on, *resume, folder], log=log)
    for model in ("actor", "critic"):
        for part in ("model", "optim", "extra_state"):
            name = f"{model}/{part}_world_size_1_rank_0.pt"
            before, after = (
                flat(torch.load(place / name, weights_only=False)) for place in (saved, reloaded)
            )
            assert before.keys() == after.keys() and len(before) > 1, name
            assert all(same(before[key], after[key]) for key in before), name
    before, after = [row for _, row in read_json_lines(tmp_path / "resumed" / "metrics.jsonl")]
    # A run in another folder knows the saved step from the checkpoint.
    assert before["step"] == 2 and before["tokens/trained"] == steps["ppo"][0][0]["tokens/trained"]
    assert after["counter/steps"] == 3, "the callback's state is restored too"
    assert after["step"] == 3 and after["critic/vf_loss"] < steps["ppo"][0][0]["critic/vf_loss"]
    assert [path.name for path in (tmp_path / "resumed").glob("global_step_*")] == ["global_step_3"]


def test_a_resumed_run_has_its_credit_back_and_stopping_changes_nothing_before_the_stop(
    run, steps, common, finish, python, tmp_path
):
    """Repeat the step after the checkpoint without stopping."""
    finish(
        [
            *(python, "-m", "seele_verl.train", *common, *MILESTONES.split(), "seele.credit.stop=false"),
            f"trainer.total_training_steps={SAVED_WITH_CREDIT + 1}",
            "trainer.resume_mode=resume_path",
            f"trainer.resume_from_path={run / f'global_step_{SAVED_WITH_CREDIT}'}",
            f"trainer.default_local_dir={tmp_path / 'resumed'}",
        ],
        log=tmp_path / "resumed" / "logs" / "train.log",
    )
    _, (stopped_line, stopped) = steps["milestones"]
    path = tmp_path / "resumed" / "rollouts" / f"step_{SAVED_WITH_CREDIT + 1}.jsonl"
    whole = [row for _, row in read_json_lines(path)]
    assert stopped_line["step"] == SAVED_WITH_CREDIT + 1
    assert {row["finish"] for row in stopped} > {"flagged"} and "flagged" not in {
        row["finish"] for row in whole
    }
    # A rollout that guesses right in the end has made no error, which changes its group's baseline.
    pairs = [*zip(stopped, whole, strict=True)]
    guessed = {one["instance_id"] for one, other in pairs if one["segments"] != other["segments"]}
    assert len(guessed) < 8
    credited = 0
    for one, other in pairs:
        assert (one["instance_id"], one["rollout"]) == (other["instance_id"], other["rollout"])
        assert other["text"].startswith(one["text"])
        assert one["segments"] == other["segments"] or other["reason"] == "correct"
        if one["finish"] == "flagged":
            assert one["text"].endswith("\n") and one["rollout"] > 0
            assert one["generated_tokens"] < other["generated_tokens"]
            assert one["segments"][-1][1] < one["generated_tokens"] and not one["segments"][-1][3]
        else:
            assert one["text"] == other["text"]
        if one["instance_id"] not in guessed:
            # Pass rates in the checkpoint are part of every baseline. The dump has four decimal places.
            advantages = other["token_advantages"][: one["generated_tokens"]]
            assert one["token_advantages"] == pytest.approx(advantages, abs=1.5e-4)
            credited += any(advantages)
    assert credited


def test_each_segment_has_its_own_advantage(steps):
    num_right = num_alarms = num_told_apart = 0
    for line, rows in steps["milestones"]:
        assert 0 < line["milestones/passed_share"] < 1 and line["milestones/stops"] == 1
        right = [row for row in rows if row["rollout"] == 0 and row["reason"] == "correct"]
        num_right, num_alarms = num_right + len(right), num_alarms + sum(row["is_flagged"] for row in right)
        assert line["milestones/right_and_unstopped"] == num_right
        assert line["milestones/false_alarms"] == num_alarms / max(num_right, 1)
        assert line["reward/no_answer_share"] < 0.5, "stopped responses do not count as unanswered"
        for row in rows:
            assert row["segments"][0][0] == 0 and (row["finish"] == "flagged") <= (row["reward"] == 0)
            if row["reason"] == "correct":
                assert all(passed for *_, passed in row["segments"])
            advantages, end = row["token_advantages"], row["segments"][-1][1]
            of_segments = [{*advantages[start:stop]} for start, stop, *_ in row["segments"]]
            assert all(len(values) <= 1 for values in of_segments) and not any(advantages[end:])
            num_told_apart += len(set().union(*of_segments)) > 1
    assert num_told_apart
    # Stopping alone leaves the rollout's advantage on all of its tokens.
    ((line, rows),) = steps["grpo"]
    assert line["milestones/stops"] == 1 and "flagged" in {row["finish"] for row in rows}
    for group in groups_of(rows).values():
        assert len({round(row["advantage"], 5) for row in group}) <= 2
    for row in rows:
        assert "".join(row["tokens"]).startswith(row["text"])
        assert row["token_advantages"] == [round(row["advantage"], 4)] * row["generated_tokens"]
        # On a CPU the engine's log-probabilities are the trainer's.
        assert row["token_log_ratios"] == [0.0] * row["generated_tokens"]


def test_hints_end_before_steps_of_even_odds_and_last_successes_are_replayed(steps):
    controller, succeeded = NextMilestoneController(), {}
    for index, (line, rows) in enumerate(steps["next milestones"]):
        replayed = {row["instance_id"]: row["text"] for row in rows if row["origin"] == "replay"}
        assert replayed.keys() == succeeded.keys() and len(replayed) == 8 * line["group/off_policy"]
        assert all(text in succeeded[name] for name, text in replayed.items())
        controller.begin_step(index)
        for name, group in groups_of(rows).items():
            generated, num_steps = [row for row in group if row["origin"] == "policy"], group[0]["num_steps"]
            legal = [shown / num_steps for shown in range(num_steps)]
            hint = next_hint(controller, name, round_index=0, legal_ratios=legal)
            assert {row["hint_ratio"] for row in generated} == {hint}
            passed = sum(row["segments"][0][3] for row in generated)
            observe(controller, name, hint_ratio=hint, num_correct=passed, num_rollouts=len(generated))
            end_visit(controller, name)
        succeeded = defaultdict(set)
        for row in rows:
            if row["reward"]:
                succeeded[row["instance_id"]].add(row["text"])
    assert line["group/hinted"] > 0 and line["group/off_policy"] > 0


def test_a_selection_goes_with_credit(steps):
    ((line, rows),) = steps["selected milestones"]
    told_apart = 0
    for group in groups_of(rows).values():
        is_trained = {row["advantage"] is not None for row in group}
        assert len(is_trained) == 1, "a group is trained on whole or not at all"
        for row in group:
            assert ("token_advantages" in row) is (row["advantage"] is not None)
            told_apart += len({*row.get("token_advantages", ())}) > 1
    selected = sum(row["advantage"] is not None for row in rows) / 8
    assert selected == line["selection/selected_groups"] <= 4
    assert bool(told_apart) == bool(selected)


def flat(state, at: str = "") -> dict:
    """Return the state's values by path."""
    if isinstance(state, (dict, list, tuple)):
        pairs = state.items() if isinstance(state, dict) else enumerate(state)
        return {path: value for key, each in pairs for path, value in flat(each, f"{at}/{key}").items()}
    return {at: state}


def same(one, other) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(np.array_equal(one, other))
    one, other = (getattr(tensor, "_local_tensor", tensor) for tensor in (one, other))
    return one.dtype == other.dtype and torch.equal(one, other)


def test_the_worked_solution_is_graded_and_costs_no_generated_token(steps):
    for method in ("luffy", "rl_sft_loss"):
        (line, rows) = steps[method][0]
        given = [row for row in rows if row["origin"] == "trace"]
        assert len(given) == 8 and all(row["reward"] == 1 and row["generated_tokens"] == 0 for row in given)
        assert line["accuracy/off_policy"] == 1
        assert line["tokens/teacher_forced"] > 0
        assert 0 < line["actor/off_policy_probability"] < 1
        assert line["tokens/generated"] == sum(row["generated_tokens"] for row in rows)


def check_advantages(rows: list[dict]) -> None:
    """Each advantage is the reward itself, not its verdict, minus the group's mean."""
    for group in groups_of(rows).values():
        mean = sum(row["reward"] for row in group) / len(group)
        for row in group:
            assert row["advantage"] == pytest.approx(row["reward"] - mean, abs=1e-6)


def test_a_reward_of_the_users_own_is_what_is_learnt_from(steps, problems):
    spec = f"{EXAMPLES}/own_reward/reward.py:compute_score"
    compute_score = partial(find_part(spec, key="test", group="rewards", built_in={}), most=0.3)
    worked = {each.instance_id: list(each.steps) for each in read_problems(problems / "train.parquet")}
    line, rows = steps["own reward"][0]
    assert any(row["hint"] for row in rows)
    for row in rows:
        told = {"steps": worked[row["instance_id"]], "hint": row["hint"]}
        expected = compute_score("chains", row["text"], row["answer"], told)
        assert row["reward"] == expected["score"]
        assert row["reward_extra"] == {"right_steps": expected["right_steps"]}
        assert (row["reason"] == "correct") is (row["reward"] >= 0.5)
    assert line["reward/mean"] == pytest.approx(np.mean([row["reward"] for row in rows]))
    right_steps = [row["reward_extra"]["right_steps"] for row in rows]
    assert line["reward/right_steps"] == pytest.approx(np.mean(right_steps))
    check_advantages(rows)


def test_a_judge_behind_a_server_is_asked_for_every_rollout_with_an_end(steps, judge):
    line, rows = steps["judge"][0]
    ended = [row for row in rows if row["reason"] != "truncated"]
    assert len(judge.asked) == len(ended) > 0 and len(rows) == 64
    for row in ended:
        assert row["reward"] == int(row["reward_extra"]["verdict"].removeprefix("Hm. Score: ")) / 10
    assert len({row["reward"] for row in rows}) > 3
    assert line["reward/judged"] == 1.0
    assert line["accuracy/mean"] == pytest.approx(np.mean([row["reward"] >= 0.8 for row in rows]))
    check_advantages(rows)


def test_a_callback_hears_of_every_step_and_its_numbers_are_logged(run, steps):
    lines = [line for of_method in steps.values() for line, _ in of_method]
    assert [line["counter/steps"] for line in lines] == [line["step"] for line in lines]
    saved = sorted(run.glob("global_step_*/counted"))
    assert saved and all(path.parent.name == f"global_step_{path.read_text()}" for path in saved)


def test_dapo_trains_on_groups_that_disagree(steps):
    line, rows = steps["dapo"][0]
    # If many groups are replaced, a problem may occur twice.
    trained = [row for row in rows if row["advantage"] is not None]
    assert len(trained) == 8 * 8
    for group in groups_of(trained).values():
        assert 0 < sum(row["reward"] for row in group) < len(group)
    filtered = line.get("training/filter_groups/evicted_samples", 0)
    surplus = line.get("training/filter_groups/discarded_surplus_samples", 0)
    assert len(rows) == 8 * (8 + filtered + surplus)


def test_exgrpo_replays_a_success_of_its_first_step(steps):
    (_, first), (line, second) = steps["exgrpo"]
    texts = defaultdict(set)
    for row in first:
        if row["reward"]:
            texts[row["instance_id"]].add(row["text"])
    replayed = [row for row in second if row["origin"] == "replay"]
    assert 1 <= len(replayed) <= 4
    assert all(row["text"] in texts[row["instance_id"]] and row["reward"] for row in replayed)
    assert line["group/off_policy"] == len(replayed) / 8
    assert line["replay/is_open"] == 1


def test_selection_drops_whole_groups_and_the_curriculum_learns(steps):
    first, second = steps["seele"]
    for line, rows in (first, second):
        by_group = [{row["advantage"] is None for row in group} for group in groups_of(rows).values()]
        assert all(len(answers) == 1 for answers in by_group), "a group is trained on whole or not at all"
        assert sum(answers == {False} for answers in by_group) == line["selection/selected_groups"] <= 4
        assert line["selection/target_ratio"] == pytest.approx(0.4)
        assert line["tokens/trained"] < line["tokens/generated"] + line["tokens/prompt"]
    assert any(value > 0 for name, value in first[0].items() if name.startswith("curriculum/q/"))


def test_right_responses_become_solutions(steps):
    solved = set()
    for line, rows in steps["seele"]:
        solved |= {row["instance_id"] for row in rows if row["reward"] == 1}
        assert line["hints/own_solutions"] == len(solved) > 0


def test_an_ordered_curriculum_begins_with_the_easy_problems(steps, problems):
    import pyarrow.parquet as pq

    table = pq.read_table(problems / "train.parquet").to_pylist()
    level = {row["instance_id"]: row["level"] for row in table}
    rolled_out = sorted(level[instance_id] for instance_id in groups_of(steps["drgrpo"][0][1]))
    assert rolled_out == sorted(level.values())[:8]


def test_totals_run_over_all_methods(run, steps):
    lines = [line for of_method in steps.values() for line, _ in of_method]
    trained = ("tokens/trained", "tokens/trained_packed", "tokens/trained_informative")
    for name in ("tokens/generated", *trained, "tokens/teacher_forced", "flops"):
        assert lines[-1][f"{name}_total"] == pytest.approx(sum(line[name] for line in lines))
    card = json.loads((run / "run_card.json").read_text())
    assert card["tokens"]["generated"] == lines[-1]["tokens/generated_total"]
