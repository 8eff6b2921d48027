"""Each method, token by token: the contents of its rows, and which term reaches which token.

A group of one problem is turned into rows as in training, batched as verl's engine passes it to the loss, and
differentiated. The prompt has 2 tokens, the solution 3 steps of 2 tokens, responses 3 tokens unless given.
"""

import dataclasses
from functools import cache, partial
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import torch
from omegaconf import OmegaConf
from tensordict import NonTensorData, TensorDict
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import response_to_nested

from seele.config import AdvantageConfig
from seele.losses.expert_prefix import LEARNT_ONCE
from seele.losses.imitation import HINT_WEIGHTS
from seele.losses.off_policy import OFF_POLICY_MASK
from seele.maths.advantages import pooled_advantages
from seele.methods import METHODS
from seele.methods.advantage import group_advantages
from seele.methods.baselines import build_baseline, group_of
from seele.methods.credit import MilestoneCredit
from seele.methods.loss_terms import LossTerms
from seele.methods.sources import build_source
from seele.records import (
    Completion,
    Finish,
    Grade,
    GradeReason,
    HintShare,
    Instance,
    Milestone,
    Origin,
    Rollout,
    Segment,
    Visit,
    Walk,
)
from seele.rollout.solutions import EncodedProblem
from seele_verl import columns, losses
from seele_verl.advantages import (
    exchange_log_probs,
    span_advantages,
    weigh_on_policy_tokens_only,
    write_advantages,
)
from seele_verl.losses import (
    have_weight,
    informative_columns,
    means_over_computed,
    seele_loss,
    solution_loss,
    weight_columns,
)
from seele_verl.protocol import (
    ADVANTAGE,
    LOG_PROB_COLUMNS,
    OFF_POLICY_ADVANTAGE,
    count_of,
    forward_row,
    training_rows,
)
from seele_verl.rollout_correction import verl_rollout_correction
from seele_verl.self_distillation import write_divergence
from seele_verl.settings import read_settings
from seele_verl.train import compose

PROMPT = [1, 2]
STEPS = [[11, 12], [13, 14], [15, 16]]
ASKING = ([1, 7, 2], [1, 7, 7, 2], [1, 7, 7, 7, 2])
EOS = 9
VOCABULARY = 20
INSTANCE = Instance(
    instance_id="i", data_source="x", question="?", steps=("a", "b", "c"), answer="c", level=1
)
CREDITED = ("seele seele.credit.name=milestones", "uft seele.credit.name=milestones")
METHODS_OF_ROWS = [
    "grpo",
    "drgrpo",
    "rloo",
    "ppo",
    "dapo",
    "gspo",
    "cispo",
    "seele",
    "seele_paper",
    "luffy",
    "rl_sft_loss",
    "uft",
    "prefix_rft",
    "exgrpo",
    "milestones",
    "asymre",
    "opmd",
    "trapo",
    "adaback",
    "relift",
    *CREDITED,
    *(CONTINUED := ("adaprefix", "bread")),
    *(ASKED := ("mfc", "ghpo", "sage")),
    "scaf_grpo",
    *(IN_PART := ("adhint", "prefix_rl")),
    "pope",
    "opsd",
]


UNHINTED = ("grpo", "drgrpo", "rloo", "ppo", "dapo", "gspo", "cispo", "asymre", "opmd", "relift", "pope")


def rollout(index, right, *, hint_steps=0, tokens=(5, 6, 7), log_prob=-1.5, origin=Origin.POLICY):
    return Rollout(
        round_index=0,
        rollout_index=index,
        share=HintShare(hint_steps / 3, 1),
        hint_steps=hint_steps,
        completion=Completion(
            text="", token_ids=tuple(tokens), log_probs=(log_prob,) * len(tokens), finish=Finish.STOP
        ),
        grade=Grade(bool(right), GradeReason.CORRECT if right else GradeReason.WRONG),
        origin=origin,
    )


def walked(each, *segments, error=None):
    """Return the rollout with (end, milestone, passed) of each segment."""
    starts = [0, *(end for end, _, _ in segments)]
    walk = Walk(tuple(Segment(start, *rest) for start, rest in zip(starts, segments, strict=False)), error)
    return dataclasses.replace(each, grade=dataclasses.replace(each.grade, walk=walk))


def rollouts_of(method):
    """Return four rollouts as in the method."""
    if method in ("milestones", *CREDITED):
        # The hint states no milestone.
        first, second, third, fourth = (
            rollout(i, i == 0, hint_steps=int(method != "milestones")) for i in range(4)
        )
        return [
            walked(first, (1, 0, True), (4, 1, True)),
            walked(second, (1, 0, False), error=0),
            walked(third, (1, 0, True), (4, 1, False)),
            walked(fourth, (1, 0, True), (3, 1, False), error=2),
        ]
    if method in ("luffy", "rl_sft_loss"):
        trace = [*(token for step in STEPS for token in step), EOS]
        given = rollout(3, True, tokens=trace, log_prob=0.0, origin=Origin.TRACE)
        return [rollout(0, True), rollout(1, False), rollout(2, False), given]
    if method == "exgrpo":
        old = rollout(3, True, tokens=(5, 8), log_prob=-0.5, origin=Origin.REPLAY)
        return [rollout(0, True), rollout(1, False), rollout(2, False), old]
    if method in ("seele", "seele_paper", "uft", "adaback", *CONTINUED, *ASKED):
        return [rollout(i, i < 2, hint_steps=2) for i in range(4)]
    if method == "trapo":
        hinted = [rollout(i, False, hint_steps=2) for i in (2, 3)]
        return [rollout(0, True), rollout(1, False), *hinted]
    if method in IN_PART:
        hints = (0, 0, 2, 2) if method == "adhint" else (1, 1, 2, 2)
        rollouts = [rollout(i, i % 2 == 0, hint_steps=hint) for i, hint in enumerate(hints)]
        return [dataclasses.replace(each, round_index=i // 2) for i, each in enumerate(rollouts)]
    if method == "scaf_grpo":
        return [*(rollout(i, False) for i in range(3)), rollout(3, True, hint_steps=1)]
    if method == "prefix_rft":
        return [rollout(0, True, hint_steps=2), rollout(1, True), rollout(2, False), rollout(3, False)]
    return [rollout(0, True), rollout(1, False), rollout(2, False), rollout(3, False)]


@cache
def config_of(method):
    size = ("seele.hints.rollouts_per_prompt=4", "seele.hints.rounds=1", "seele.hints.round_sizes=null")
    size += ("seele.hints.when=always",)  # one round cannot wait for failures
    return compose([*f"method={method}".split(), "hardware=cpu", "job=tiny", *size])


def of_lengths(rollouts, lengths):
    """Return the rollouts with these numbers of tokens where the policy wrote them."""

    def cut(each, length):
        if each.origin is not Origin.POLICY:
            return each
        tokens, log_probs = (5, 6, 7, 8)[:length], (-1.5,) * length
        completion = dataclasses.replace(each.completion, token_ids=tokens, log_probs=log_probs)
        return dataclasses.replace(each, completion=completion)

    return [cut(each, length) for each, length in zip(rollouts, lengths, strict=True)]


def test_every_method_of_rollouts_is_looked_at():
    assert {*METHODS_OF_ROWS} - {*CREDITED} == {*METHODS} - {"sft", "sft_rl"}


def rows_of(method, lengths=(3, 3, 3, 3), penalties=(0.0, 0.0, 0.0, 0.0), *, rollouts=None, **settings):
    config = config_of(method)
    rollouts = of_lengths(rollouts or rollouts_of(method), lengths)
    return config, rows_from(config, rollouts, penalties, **settings)


def rows_from(config, rollouts, penalties, **changed):
    """Return rows as a rollout worker makes them."""
    settings = dataclasses.replace(read_settings(config), **changed)
    method = METHODS[settings.method]
    source = build_source(settings.off_policy)
    group = group_of("i", rollouts, penalties=penalties, target_accuracy=settings.hints.target_accuracy)
    baseline = build_baseline(
        settings,
        leave_one_out=method.leaves_one_out,
        divide_by_std=config.algorithm.norm_adv_by_std_in_grpo,
    )
    return training_rows(
        "step1-000000",
        INSTANCE,
        rollouts,
        encoded=EncodedProblem(
            prompt_ids=PROMPT,
            step_ids=STEPS,
            moved_cuts=0,
            asking_ids=ASKING if settings.hints.placement == "user" else (),
        ),
        model_version=0,
        global_step=1,
        terms=LossTerms(settings),
        source=source,
        rewards=group.rewards_G.tolist(),
        advantages=None if method.has_critic else group_advantages(group, source=source, baseline=baseline),
        tells_accuracy=settings.method == "dapo",
    )


def test_a_hint_of_the_users_is_prompt_alone():
    config = config_of("seele")
    settings = read_settings(config)
    encoded = EncodedProblem(prompt_ids=PROMPT, step_ids=STEPS, moved_cuts=0, asking_ids=ASKING)
    rows = training_rows(
        "step1-000000",
        INSTANCE,
        [rollout(0, True), rollout(1, False, hint_steps=2)],
        encoded=encoded,
        model_version=0,
        global_step=1,
        terms=LossTerms(settings),
        source=build_source(settings.off_policy),
        rewards=[1.0, 0.0],
        advantages=None,
        tells_accuracy=False,
    )
    assert values(rows.fields, "prompts") == [PROMPT, [1, 7, 7, 2]]
    assert values(rows.fields, HINT_WEIGHTS) == [[0.0] * 5, [0.0] * 7]


def test_a_supplied_response_does_not_teach_the_hint_that_it_was_written_behind():
    replayed = dataclasses.replace(rollout(3, True, hint_steps=2), origin=Origin.REPLAY)
    for rounds_own in (replayed, dataclasses.replace(replayed, hint_steps=0)):
        rows = rows_from(
            config_of("seele"),
            [rollout(each, True, hint_steps=1) for each in range(3)] + [rounds_own],
            (0.0,) * 4,
        )
        assert [max(weights) for weights in values(rows.fields, HINT_WEIGHTS)] == [1.0, 1.0, 1.0, 0.0]


def values(fields, name):
    return [row.tolist() for row in fields[name].unbind()]


def test_rows_without_off_policy_tokens_have_no_such_columns():
    for method in (*UNHINTED, "opsd"):
        _, rows = rows_of(method)
        assert not {HINT_WEIGHTS, OFF_POLICY_MASK} & set(rows.fields.keys())
        assert values(rows.fields, "prompts") == [PROMPT] * 4
        assert values(rows.fields, "rm_scores") == [[0, 0, 1.0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_rows_carry_their_advantage_unless_a_critic_estimates_it():
    for method in METHODS_OF_ROWS:
        _, rows = rows_of(method)
        assert {ADVANTAGE in tag for tag in rows.tags} == {method != "ppo"}, method


def test_dapo_tells_verls_filter_what_was_correct():
    _, rows = rows_of("dapo")
    told = [row["reward_extra_info"]["acc"] for row in rows.fields["extra_fields"]]
    assert told == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("baseline", "told"), [("pooled", [0, 0, 1, 1]), ("per_round", [0, 0, 0, 0])])
def test_verls_filter_drops_a_group_whose_rounds_each_agree(baseline, told):
    rollouts = [dataclasses.replace(rollout(i, i > 1), round_index=i // 2) for i in range(4)]
    _, rows = rows_of("dapo", rollouts=rollouts, advantage=AdvantageConfig(baseline=baseline))
    assert [row["reward_extra_info"]["acc"] for row in rows.fields["extra_fields"]] == told


@pytest.mark.parametrize("method", ["uft", "seele", "seele_paper"])
def test_a_hint_stands_in_the_prompt_and_is_imitated(method):
    # All four rollouts of the round share the hint of four tokens: its product counts once over sequences, or
    # each of its tokens in every row.
    _, rows = rows_of(method)
    assert values(rows.fields, "prompts") == [[1, 2, 11, 12, 13, 14]] * 4
    assert values(rows.fields, "responses") == [[5, 6, 7]] * 4
    assert values(rows.fields, HINT_WEIGHTS) == [[0, 0, *[1] * 4, 0, 0, 0]] * 4
    assert OFF_POLICY_MASK not in set(rows.fields.keys())


def test_a_long_last_round_is_imitated_as_much_as_the_rounds_that_it_stands_for():
    # Two rounds of two were planned; the second is of six. Each row's hint counts once, over sequences.
    rollouts = [rollout(i, True, hint_steps=2 if i < 2 else 1) for i in range(8)]
    rollouts = [dataclasses.replace(each, round_index=int(i >= 2)) for i, each in enumerate(rollouts)]
    config = config_of("seele")
    settings = read_settings(config)
    hints = dataclasses.replace(settings.hints, rounds=4, rollouts_per_prompt=8)
    imitation = dataclasses.replace(settings.imitation, form="logprob_mean")
    rows = rows_from(config, rollouts, [0.0] * 8, hints=hints, imitation=imitation)
    assert [sum(weights) for weights in values(rows.fields, HINT_WEIGHTS)] == pytest.approx([1.0] * 8)


@pytest.mark.parametrize(
    ("methods", "prompts"),
    [
        (("adaback", *CONTINUED), [[1, 2, 11, 12, 13, 14]] * 4),
        (ASKED, [[1, 7, 7, 2]] * 4),
        (("scaf_grpo",), [PROMPT] * 3 + [[1, 7, 2]]),
        (("adhint",), [PROMPT] * 2 + [[1, 2, 11, 12, 13, 14]] * 2),
        (("prefix_rl",), [[1, 2, 11, 12]] * 2 + [[1, 2, 11, 12, 13, 14]] * 2),
    ],
)
def test_a_hint_that_is_not_learnt_stands_in_the_prompt_alone(methods, prompts):
    for method in methods:
        _, rows = rows_of(method)
        assert values(rows.fields, "prompts") == prompts, method
        assert not {HINT_WEIGHTS, OFF_POLICY_MASK} & set(rows.fields.keys()), method


@pytest.mark.parametrize("method", ["luffy", "rl_sft_loss"])
def test_the_worked_solution_is_a_row_of_the_group(method):
    _, rows = rows_of(method)
    assert values(rows.fields, "prompts") == [PROMPT] * 4
    assert values(rows.fields, "responses")[3] == [11, 12, 13, 14, 15, 16, EOS]
    assert values(rows.fields, OFF_POLICY_MASK) == [[0, 0, 0]] * 3 + [[1] * 7]
    assert values(rows.fields, "rollout_log_probs")[3] == [0.0] * 7


def test_luffy_takes_the_mean_over_the_solution_too_and_the_sft_loss_does_not():
    _, rows = rows_of("luffy")
    assert [tag[ADVANTAGE] for tag in rows.tags] == pytest.approx([0.5, -0.5, -0.5, 0.5])
    _, rows = rows_of("rl_sft_loss")
    assert [tag[ADVANTAGE] for tag in rows.tags[:3]] == pytest.approx([2 / 3, -1 / 3, -1 / 3])


def test_a_prefix_of_trapo_has_the_advantage_of_any_rollout_and_is_learnt_once():
    _, rows = rows_of("trapo")
    assert values(rows.fields, "responses") == [*[[5, 6, 7]] * 2, *[[11, 12, 13, 14, 5, 6, 7]] * 2]
    assert values(rows.fields, OFF_POLICY_MASK) == [*[[0, 0, 0]] * 2, *[[1, 1, 1, 1, 0, 0, 0]] * 2]
    assert values(rows.fields, LEARNT_ONCE) == [[0] * 3, [0] * 3, [1, 1, 1, 1, 0, 0, 0], [0] * 7]
    assert [tag[ADVANTAGE] for tag in rows.tags] == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_a_prefix_is_part_of_its_response():
    _, rows = rows_of("prefix_rft")
    assert values(rows.fields, "prompts") == [PROMPT] * 4
    assert values(rows.fields, "responses") == [[11, 12, 13, 14, 5, 6, 7], *[[5, 6, 7]] * 3]
    assert values(rows.fields, OFF_POLICY_MASK) == [[1, 1, 1, 1, 0, 0, 0], *[[0, 0, 0]] * 3]
    assert [tag[ADVANTAGE] for tag in rows.tags] == pytest.approx([1, 2 / 3, -1 / 3, -1 / 3])
    assert [tag[OFF_POLICY_ADVANTAGE] for tag in rows.tags] == pytest.approx([2 / 3, 0, 0, 0])


PENALTIES = (-0.25, 0.0, -0.75, 0.0)


@pytest.mark.parametrize(
    ("method", "advantage", "expected", "of_prefix"),
    [
        # Rewards with penalties 0.75, 0, -0.75, 0; the third rollout is a round of its own with the fourth.
        ("drgrpo", {"baseline": "per_round"}, [0.375, -0.375, -0.375, 0.375], None),
        ("rloo", {}, [1.0, 0.0, -1.0, 0.0], None),
        ("rloo", {"baseline": "per_round"}, [0.75, -0.75, -0.75, 0.75], None),
        # The mean of the round's other and of one rollout of accuracy 1/2.
        (
            "rloo",
            {"baseline": "hint_conditional", "prior_rollouts": 1.0},
            [0.75 - 0.25, -(0.75 + 0.5) / 2, -0.75 - 0.25, -(-0.75 + 0.5) / 2],
            None,
        ),
        # The last row is a solution, right and without penalty: 0.75, 0, -0.75 have mean 0.
        ("rl_sft_loss", {}, [0.75, 0.0, -0.75, 1.0], None),
        # The first continues the prefix, its reward is 0.75; the others' are 1, -0.75, 0.
        ("prefix_rft", {}, [0.75, 1 - 1 / 12, -0.75 - 1 / 12, -1 / 12], [0.75 - 1 / 12, 0, 0, 0]),
    ],
)
def test_penalties_reach_every_baseline(method, advantage, expected, of_prefix):
    config = config_of(method)
    rollouts = rollouts_of(method)
    if advantage.get("baseline", "pooled") != "pooled":
        rollouts = [dataclasses.replace(each, round_index=at // 2) for at, each in enumerate(rollouts)]
    rows = rows_from(config, rollouts, PENALTIES, advantage=AdvantageConfig(**advantage))
    assert [tag[ADVANTAGE] for tag in rows.tags] == pytest.approx(expected)
    if of_prefix:
        assert [tag[OFF_POLICY_ADVANTAGE] for tag in rows.tags] == pytest.approx(of_prefix)
    rewards = [float(scores.sum()) for scores in rows.fields["rm_scores"].unbind()]
    graded = [rollout.reward for rollout in rollouts]
    assert rewards == pytest.approx([r + p for r, p in zip(graded, PENALTIES, strict=True)])


def test_a_replayed_success_keeps_the_log_probabilities_it_was_written_with():
    _, rows = rows_of("exgrpo")
    assert values(rows.fields, OFF_POLICY_MASK) == [[0, 0, 0]] * 3 + [[1, 1]]
    assert values(rows.fields, "rollout_log_probs")[3] == [-0.5, -0.5]


COLUMNS = (
    "input_ids",
    "prompts",
    "responses",
    "rm_scores",
    "rollout_log_probs",
    HINT_WEIGHTS,
    OFF_POLICY_MASK,
    LEARNT_ONCE,
)
"""Columns of the rows that a loss or this file reads."""


def jagged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


class Batch:
    """Rows as verl's engine passes them to a loss, and a policy that is a table of logits by position. GRPO's
    advantages replace those that a critic would estimate.
    """

    def __init__(self, method, lengths=(3, 3, 3, 3), rollouts=None):
        self.method = method
        config, rows = rows_of(method, lengths, rollouts=rollouts)
        columns = {name: rows.fields[name].unbind() for name in COLUMNS if name in rows.fields.keys()}  # noqa: SIM118
        fields = TensorDict({name: jagged(list(column)) for name, column in columns.items()}, batch_size=4)
        responses = fields["responses"].unbind()
        rewards = [float(scores.sum()) for scores in fields["rm_scores"].unbind()]
        by_critic = pooled_advantages(
            rewards, divide_by_std=config.algorithm.norm_adv_by_std_in_grpo
        ).tolist()
        advantages = []
        for value, response, tag, position in zip(by_critic, responses, rows.tags, range(4), strict=True):
            advantage = torch.full((len(response),), tag.get(ADVANTAGE, value))
            if method in ("milestones", *CREDITED):
                advantage = span_advantages(len(response), spans_of_milestones(method, lengths)[position])
            if OFF_POLICY_MASK in columns:
                off_policy = fields[OFF_POLICY_MASK].unbind()[position].bool()
                advantage[off_policy] = tag[OFF_POLICY_ADVANTAGE]
            advantages.append(advantage)
        fields["advantages"] = jagged(advantages)
        fields["old_log_probs"] = fields["rollout_log_probs"]
        fields["ref_log_prob"] = fields["rollout_log_probs"]
        fields["response_mask"] = jagged([torch.ones(len(response)) for response in responses])
        if method == "opsd":
            distil(fields, rows)
        tokens = sum(map(len, responses))
        for name, value in {"dp_size": 1, "batch_num_tokens": tokens, "global_batch_size": 4}.items():
            fields.set_non_tensor(name, value)
        if OFF_POLICY_MASK in columns:
            num_tokens = int(fields[OFF_POLICY_MASK].values().sum())
            fields[count_of(OFF_POLICY_MASK)] = NonTensorData(num_tokens)
        if HINT_WEIGHTS in columns:
            fields[count_of(HINT_WEIGHTS)] = NonTensorData(int(fields[HINT_WEIGHTS].values().count_nonzero()))
        self.fields = fields
        self.targets_T = torch.roll(fields["input_ids"].values(), -1)
        torch.manual_seed(0)
        self.logits_TV = torch.randn(len(self.targets_T), VOCABULARY, requires_grad=True)
        settings = read_settings(config)
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        terms = LossTerms(settings)
        loss = partial(seele_loss, terms=terms) if terms.change_the_loss else ppo_loss
        self.loss_function = partial(loss, config=actor)

    def loss(self):
        log_softmax_TV = torch.log_softmax(self.logits_TV, dim=-1)
        log_probs_T = log_softmax_TV.gather(1, self.targets_T[:, None])[:, 0]
        entropy_T = -(log_softmax_TV.exp() * log_softmax_TV).sum(-1)
        offsets = self.fields["input_ids"].offsets()
        self.log_probs = torch.nested.nested_tensor_from_jagged(log_probs_T, offsets=offsets)
        self.entropy = torch.nested.nested_tensor_from_jagged(entropy_T, offsets=offsets)
        self.log_probs_T = log_probs_T
        value, metrics = self.loss_function(
            model_output={"log_probs": self.log_probs, "entropy": self.entropy},
            data=self.fields.clone(recurse=False),
        )
        return value, metrics

    def gradients(self):
        """Return the loss's gradients by log-probability of each row's tokens; 0 for the first one."""
        value, _ = self.loss()
        (gradient_T,) = torch.autograd.grad(value, self.log_probs_T)
        lengths = self.fields["input_ids"].offsets().diff().tolist()
        return [torch.cat([torch.zeros(1), row[:-1]]) for row in torch.split(gradient_T, lengths)]


TAUGHT = torch.tensor([0.5, -0.5, 0.25, 1.0])
"""Log-probability of a response's tokens under ``opsd``'s teacher, minus that under the policy."""


def distil(fields, rows):
    """Replace the advantages as the trainer does, where the teacher has scored the rows."""
    own = fields["old_log_probs"].unbind()
    fields["ref_log_prob"] = jagged([row + TAUGHT[: len(row)] for row in own])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "tq", Store(fields))
        batch = KVBatchMeta(keys=rows.keys, partition_id="train", tags=rows.tags)
        write_divergence(batch, {"step1-000000": PROMPT})


def spans_of_milestones(method, lengths):
    """Return the spans by row."""
    instance = dataclasses.replace(INSTANCE, milestones=(Milestone("3", 2), Milestone("4", 3)))
    rollouts = tuple(of_lengths(rollouts_of(method), lengths))
    visit = Visit(instance=instance, step=1, prompt_tokens=2, step_tokens=(2, 2), rollouts=rollouts)
    credit = MilestoneCredit(read_settings(config_of(method)).credit)
    return credit.take_step({"step1-000000": visit})["step1-000000"]


def signs(row):
    return [int(value) for value in torch.sign(row)]


EXPECTED = {
    # One of four is right; the wrong ones are pushed down, prompts are untouched.
    **dict.fromkeys(UNHINTED, [[0, 0, -1, -1, -1]] + [[0, 0, 1, 1, 1]] * 3),
    # Two are right; hint tokens are always pulled up, prompts are untouched.
    **dict.fromkeys(
        ("seele", "seele_paper", "uft"),
        [[0, 0, -1, -1, -1, -1, -1, -1, -1]] * 2 + [[0, 0, -1, -1, -1, -1, 1, 1, 1]] * 2,
    ),
    # The solution is right and pulled up.
    **dict.fromkeys(
        ("luffy", "rl_sft_loss"), [[0, 0, -1, -1, -1]] + [[0, 0, 1, 1, 1]] * 2 + [[0, 0, *[-1] * 7]]
    ),
    "exgrpo": [[0, 0, -1, -1, -1]] + [[0, 0, 1, 1, 1]] * 2 + [[0, 0, -1, -1]],
    # The first token reaches a milestone in three of four; nothing after an error counts.
    "milestones": [[0, 0, -1, -1, -1], [0, 0, 1, 0, 0], [0, 0, -1, 1, 1], [0, 0, -1, 1, 1]],
    # The same behind a hint, which is pulled up in all rows.
    **dict.fromkeys(
        CREDITED,
        [[0, 0, -1, -1, -1, -1, -1], [0, 0, -1, -1, 1, 0, 0]] + [[0, 0, -1, -1, -1, 1, 1]] * 2,
    ),
    "prefix_rft": [[0, 0, *[-1] * 7], [0, 0, -1, -1, -1]] + [[0, 0, 1, 1, 1]] * 2,
    # The prefix is pulled up once, although its continuations are wrong.
    "trapo": [[0, 0, -1, -1, -1], [0, 0, 1, 1, 1]] + [[0, 0, *[hint] * 4, 1, 1, 1] for hint in (-1, 0)],
    # Like seele's, except for the hint.
    **dict.fromkeys(("adaback", *CONTINUED), [[*[0] * 6, -1, -1, -1]] * 2 + [[*[0] * 6, 1, 1, 1]] * 2),
    # The same in the user's turn, whose prompts have four tokens.
    **dict.fromkeys(ASKED, [[*[0] * 4, -1, -1, -1]] * 2 + [[*[0] * 4, 1, 1, 1]] * 2),
    "scaf_grpo": [[0, 0, 1, 1, 1]] * 3 + [[0, 0, 0, -1, -1, -1]],
    # One of the two in each part is right.
    "adhint": [[*[0] * size, *[sign] * 3] for size in (2, 6) for sign in (-1, 1)],
    "prefix_rl": [[*[0] * size, *[sign] * 3] for size in (4, 6) for sign in (-1, 1)],
    # Right or wrong, tokens move towards the teacher.
    "opsd": [[0, 0, -1, 1, -1]] * 4,
}


@pytest.mark.parametrize("method", METHODS_OF_ROWS)
def test_which_tokens_each_term_reaches(method):
    batch = Batch(method)
    # On-policy, the ratio is 1, so nothing is clipped and the KL term has no gradient.
    own = batch.fields["rollout_log_probs"]
    with torch.no_grad():
        batch.loss()
    now = [row[-len(old) - 1 : -1] for row, old in zip(batch.log_probs.unbind(), own.unbind(), strict=True)]
    if method in ("luffy", "rl_sft_loss", "exgrpo"):
        masks = batch.fields[OFF_POLICY_MASK].unbind()
        now = [
            torch.where(mask.bool(), old, new)
            for mask, old, new in zip(masks, own.unbind(), now, strict=True)
        ]
    batch.fields["old_log_probs"] = batch.fields["ref_log_prob"] = jagged([row.detach() for row in now])
    assert [signs(row) for row in batch.gradients()] == EXPECTED[method]


# CISPO's value is not an objective: its weights move with the policy and have no gradient.
@pytest.mark.parametrize("method", [each for each in METHODS_OF_ROWS if each != "cispo"])
def test_the_loss_falls_on_a_fixed_batch(method):
    batch = Batch(method)
    before, _ = batch.loss()
    optimizer = torch.optim.SGD([batch.logits_TV], lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        value, _ = batch.loss()
        value.backward()
        optimizer.step()
    after, _ = batch.loss()
    assert after.item() < before.item()


IMITATED = ("seele", "seele_paper", "uft", *CREDITED)
GIVEN = ("luffy", "rl_sft_loss", "exgrpo")


def without_kl_and_entropy(config):
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    return dataclasses.replace(actor, use_kl_loss=False, entropy_coeff=0.0)


@pytest.mark.parametrize("method", METHODS_OF_ROWS)
def test_a_row_without_weight_has_no_gradient(method):
    batch = Batch(method)
    actor = without_kl_and_entropy(config_of(method))
    columns = weight_columns(actor, LossTerms(read_settings(config_of(method))))
    marked = [HINT_WEIGHTS] * (method in IMITATED) + [OFF_POLICY_MASK] * (method in (*GIVEN, "trapo"))
    marked += [LEARNT_ONCE] * (method == "trapo")
    assert list(columns) == ["advantages", *marked]
    # Rows 0 and 3 have no advantage; row 3 is marked where rows of the method are, and row 0 is not.
    for name, silent in (("advantages", (0, 3)), *((name, (0,)) for name in marked)):
        rows = enumerate(batch.fields[name].unbind())
        batch.fields[name] = jagged([row * (place not in silent) for place, row in rows])
    assert have_weight(batch.fields, columns) == [False, True, True, bool(marked)]
    batch.loss_function = partial(batch.loss_function, config=actor)
    has_gradient = [bool(row.any()) for row in batch.gradients()]
    # LUFFY multiplies shaped terms by the advantage, and row 2 has TRAPO's hint of row 3; both are still
    # computed.
    has_none = method in ("luffy", "exgrpo", "trapo")
    assert (has_gradient[0], has_gradient[3]) == (False, bool(marked) and not has_none)
    # One of them may be clipped; GSPO clips both.
    assert any(has_gradient[1:3]) or method == "gspo"


def test_a_supervised_update_learns_all_tokens_of_a_solution_alike():
    # Two micro-batches, with solutions of 7 and of 2 and 1 tokens, on two ranks: each has half of the tokens.
    micro_batches = [[(PROMPT, [11, 12, 13, 14, 15, 16, EOS])], [(PROMPT, [11, EOS]), ([1], [EOS])]]
    torch.manual_seed(0)
    for solutions in micro_batches:
        rows = [forward_row(torch.tensor(prompt), torch.tensor(response)) for prompt, response in solutions]
        assert rows[0].keys() == {*LOG_PROB_COLUMNS}
        fields = TensorDict(
            {name: jagged([row[name] for row in rows]) for name in LOG_PROB_COLUMNS}, batch_size=len(rows)
        )
        for name, value in {"dp_size": 2, "batch_num_tokens": 10}.items():
            fields.set_non_tensor(name, value)
        log_probs_T = -torch.rand(len(fields["input_ids"].values()), requires_grad=True)
        log_probs = torch.nested.nested_tensor_from_jagged(log_probs_T, offsets=fields["input_ids"].offsets())
        loss, metrics = solution_loss(model_output={"log_probs": log_probs}, data=fields, dp_group=None)
        assert metrics == {}
        (gradient_T,) = torch.autograd.grad(loss, log_probs_T)
        # The position before a token holds its log-probability.
        expected = [
            number
            for prompt, response in solutions
            for number in [0.0] * (len(prompt) - 1) + [-1 / 5] * len(response) + [0.0]
        ]
        assert gradient_T.tolist() == pytest.approx(expected)
        assert loss.item() == pytest.approx(-sum(log_probs_T[gradient_T != 0].tolist()) / 5)


def test_where_any_row_may_have_a_gradient_all_have_weight():
    config = config_of("drgrpo")
    actor, terms = without_kl_and_entropy(config), [*LossTerms(read_settings(config))]
    assert weight_columns(actor, terms) == ("advantages",)
    assert weight_columns(dataclasses.replace(actor, use_kl_loss=True, kl_loss_coef=0.0), terms)
    own = SimpleNamespace(is_users=True, term=SimpleNamespace(has_loss=True, columns={"own": "response"}))
    assert weight_columns(actor, [*terms, own]) == ()
    policy_loss = dataclasses.replace(actor.policy_loss, loss_mode="dro", dro_beta=1.0)
    for changes in (
        {"use_kl_loss": True, "kl_loss_coef": 0.001},
        {"entropy_coeff": 0.001},
        {"policy_loss": policy_loss},
        {"loss_scale_factor": None},
    ):
        assert weight_columns(dataclasses.replace(actor, **changes), terms) == (), changes
    assert informative_columns(terms) == ("advantages",) and informative_columns([*terms, own]) == ()
    assert have_weight(Batch("drgrpo").fields, ()) == [True] * 4


def test_entropy_is_a_mean_over_the_rows_that_were_computed():
    # Four rows of entropy 2; the last two, with 5 of 10 tokens, were left out, and so was their sum.
    tokens, metrics = {"a": 2, "b": 3, "c": 1, "d": 4}, {"actor/entropy_loss": 1.0, "actor/pg_loss": 0.5}

    def means(mode, computed, *, rows=4, entropy=1.0):
        found = metrics | {"actor/entropy_loss": entropy}
        return means_over_computed(found, rows=rows, tokens=tokens, computed=computed, loss_agg_mode=mode)

    for mode in ("token-mean", "seq-mean-token-mean"):
        assert means(mode, {"a", "b"}) == {"actor/entropy_loss": 2.0, "actor/pg_loss": 0.5}
    # Four more rows fill the batch up. verl divides a mean over rows by them, too.
    assert means("token-mean", {"a", "b"}, rows=8)["actor/entropy_loss"] == 2.0
    assert means("seq-mean-token-mean", {"a", "b"}, rows=8, entropy=0.5)["actor/entropy_loss"] == 2.0
    assert means("token-mean", {"d"})["actor/entropy_loss"] == 2.5
    assert means("token-mean", set()) == {"actor/pg_loss": 0.5}


def test_given_rows_are_taken_over_whole_and_rows_with_a_prefix_are_not(monkeypatch):
    batch = KVBatchMeta(keys=[*"abcd"], partition_id="train", tags=[{}] * 4)
    for method, expected in (("luffy", {"d"}), ("rl_sft_loss", {"d"}), ("trapo", set())):
        monkeypatch.setattr(columns, "tq", Store(Batch(method).fields))
        terms = LossTerms(read_settings(config_of(method)))
        taken_over = [name for each in terms if (name := each.term.takes_over)]
        assert columns.keys_marked_whole(batch, taken_over) == expected, method
    assert columns.keys_marked_whole(batch, []) == set()


def test_shaped_and_likelihood_terms_have_the_values_worked_by_hand():
    for method in ("luffy", "rl_sft_loss"):
        batch = Batch(method)
        _, metrics = batch.loss()
        solution = batch.log_probs.unbind()[3][1:-1].detach()  # the prompt's last token predicts its first
        pi = solution.exp()
        # LUFFY: advantage 1/2; token sum over 88, mean of four rows.
        shaped, likelihood = -(pi / (pi + 0.1) * 0.5).sum() / 88 / 4, -solution.mean()
        expected = shaped if method == "luffy" else likelihood  # before the coefficient
        assert metrics["off_policy_loss"].aggregate() == pytest.approx(expected.item(), rel=1e-5)
        assert metrics["off_policy_probability"].aggregate() == pytest.approx(pi.mean().item(), rel=1e-5)


@pytest.mark.parametrize("method", ["luffy", "luffy seele.off_policy.loss=surrogate"])
def test_nothing_is_clipped_in_luffy(method):
    batch = Batch(method, rollouts=rollouts_of("luffy"))
    batch.fields["old_log_probs"] = jagged(
        [torch.full((len(row),), -10.0) for row in batch.fields["responses"].unbind()]
    )
    for row in batch.gradients()[:3]:
        assert (row[2:] != 0).all(), "a large ratio still has a gradient"


def test_a_term_that_only_takes_tokens_over_takes_those_that_are_not_zero():
    term = SimpleNamespace(has_loss=False, unclips=None, takes_over="own")
    assert LossTerms.change_the_loss.fget([SimpleNamespace(term=term)])
    rows = {"response_mask": torch.tensor([1, 1, 1, 0]), "own": torch.tensor([0.0, 2.0, -1.0, 1.0])}
    nested = {name: torch.nested.as_nested_tensor([row], layout=torch.jagged) for name, row in rows.items()}
    left = losses._without(TensorDict(nested, batch_size=[1]), "own")["response_mask"]
    assert left.unbind()[0].tolist() == [1, 0, 0, 0]


def test_a_step_without_off_policy_rows_is_clipped():
    # ExGRPO before its pool opens: the ratio of 0.1 is clipped where the advantage is negative.
    gradients = {}
    for tokens in (0, 2):
        batch = Batch("exgrpo")
        batch.fields[count_of(OFF_POLICY_MASK)] = NonTensorData(tokens)
        old = batch.fields["old_log_probs"].unbind()
        batch.fields["old_log_probs"] = jagged([torch.zeros(len(row)) for row in old])
        gradients[tokens] = batch.gradients()[1][2:]
    assert (gradients[0] == 0).all() and (gradients[2] > 0).all()


# Each method's loss, written out for its group of four rows; 88 is the longest response under hardware=cpu.


class Terms:
    """A batch's rows: log-probabilities, entropies and the terms of the formulas."""

    def __init__(self, batch):
        batch.loss()
        lengths = [len(row) for row in batch.fields["prompts"].unbind()]
        self.own, self.old, self.entropy, self.hint = [], [], [], []
        rows = zip(batch.log_probs.unbind(), batch.entropy.unbind(), lengths, strict=True)
        for log_probs, entropy, prompt in rows:
            self.own.append(log_probs[prompt - 1 : -1])
            self.entropy.append(entropy[prompt - 1 : -1])
            self.hint.append(log_probs[len(PROMPT) - 1 : prompt - 1])
        self.old = [row.clone() for row in batch.fields["old_log_probs"].unbind()]
        self.num_tokens = sum(map(len, self.own))

    def clipped(self, row, advantage, *, high=0.2):
        """PPO's surrogate, with verl's dual clip at 3."""
        ratio = torch.exp(self.own[row] - self.old[row])
        loss = torch.maximum(-ratio * advantage, -ratio.clamp(0.8, 1 + high) * advantage)
        return torch.minimum(loss, -3.0 * advantage) if (advantage < 0).all() else loss

    def unclipped(self, row, advantage):
        return -torch.exp(self.own[row] - self.old[row]) * advantage

    def shaped(self, row, advantage):
        ratio = torch.exp(self.own[row] - self.old[row])
        return -ratio / (ratio + 0.1) * advantage

    def k3(self, row):
        """KL to the reference, which here has the old policy's probabilities; verl limits it to 10."""
        log_ratio = self.old[row] - self.own[row]
        return (torch.exp(log_ratio) - log_ratio - 1).clamp(max=10)

    def k3_with_the_gradient_of_k2(self, row):
        k2 = 0.5 * (self.own[row] - self.old[row]) ** 2
        return k2 - k2.detach() + self.k3(row).detach()


def each(*advantages):
    return [(row, torch.tensor(value)) for row, value in enumerate(advantages)]


def grpo(terms):
    # One of four is right: mean 1/4, standard deviation 1/2. Means over each response.
    rows = each(*(x / (0.5 + 1e-6) for x in (0.75, -0.25, -0.25, -0.25)))
    kl = sum(terms.k3_with_the_gradient_of_k2(row).mean() for row, _ in rows) / 4
    return sum(terms.clipped(row, a).mean() for row, a in rows) / 4 + 0.001 * kl


def drgrpo(terms):
    return sum(terms.clipped(row, a).sum() for row, a in each(0.75, -0.25, -0.25, -0.25)) / 88 / 4


def ppo(terms):
    # Advantages as grpo's here; a run's are the critic's. Means over all tokens, no KL.
    rows = each(*(x / (0.5 + 1e-6) for x in (0.75, -0.25, -0.25, -0.25)))
    return sum(terms.clipped(row, a).sum() for row, a in rows) / terms.num_tokens


def rloo(terms):
    # Each reward minus the mean of the other three.
    return sum(terms.clipped(row, a).sum() for row, a in each(1.0, -1 / 3, -1 / 3, -1 / 3)) / terms.num_tokens


def dapo(terms):
    rows = each(*(x / (0.5 + 1e-6) for x in (0.75, -0.25, -0.25, -0.25)))
    return sum(terms.clipped(row, a, high=0.28).sum() for row, a in rows) / terms.num_tokens


pope = grpo


def gspo(terms):
    def clipped(row, advantage):
        ratio = torch.exp((terms.own[row] - terms.old[row]).mean())
        return torch.maximum(-ratio * advantage, -ratio.clamp(1 - 3e-4, 1 + 4e-4) * advantage)

    rows = each(*(x / (0.5 + 1e-6) for x in (0.75, -0.25, -0.25, -0.25)))
    return sum(clipped(row, a) for row, a in rows) / 4


def cispo(terms):
    def weighed(row, advantage):
        weights = torch.exp(terms.own[row] - terms.old[row]).clamp(max=1.2).detach()
        return -(weights * advantage * terms.own[row]).sum()

    rows = each(*(x / (0.5 + 1e-6) for x in (0.75, -0.25, -0.25, -0.25)))
    return sum(weighed(row, a) for row, a in rows) / terms.num_tokens


def asymre(terms):
    rows = each(0.85, -0.15, -0.15, -0.15)
    return sum(-(terms.own[row] * a).sum() for row, a in rows) / 88 / 4


def opmd(terms):
    rows = each(0.75, -0.25, -0.25, -0.25)
    return sum(-(terms.own[row] * a).sum() for row, a in rows) / terms.num_tokens


def two_of_four():
    return each(*(x / (3**-0.5 + 1e-6) for x in (0.5, 0.5, -0.5, -0.5)))


def adaback(terms, rows=None):
    rows = rows or two_of_four()
    kl = sum(terms.k3_with_the_gradient_of_k2(row).mean() for row, _ in rows) / 4
    return sum(terms.clipped(row, a).mean() for row, a in rows) / 4 + 0.001 * kl


adaprefix = bread = mfc = adaback


def ghpo(terms, high=0.2):
    # The group that replaced the failed one, a mean over all tokens, no KL.
    return sum(terms.clipped(row, a, high=high).sum() for row, a in two_of_four()) / terms.num_tokens


sage = partial(ghpo, high=0.28)


def scaf_grpo(terms):
    # The rescue is the only success.
    rows = each(*(x / (0.5 + 1e-6) for x in (-0.25, -0.25, -0.25, 0.75)))
    return sum(terms.clipped(row, a).sum() for row, a in rows) / terms.num_tokens


def adhint(terms):
    # Each half has mean 1/2 and standard deviation 1/sqrt(2).
    return adaback(terms, each(*(x / (2**-0.5 + 1e-6) for x in (0.5, -0.5, 0.5, -0.5))))


prefix_rl = adhint


def opsd(terms):
    rows = [(row, TAUGHT[: len(terms.own[row])]) for row in range(4)]
    # By token, unlike in ``clipped``: verl's dual clip is for those of negative advantage.
    loss = 0.0
    for row, advantage_R in rows:
        ratio_R = torch.exp(terms.own[row] - terms.old[row])
        clipped_R = torch.maximum(-ratio_R * advantage_R, -ratio_R.clamp(0.8, 1.2) * advantage_R)
        dual_R = torch.minimum(clipped_R, -3.0 * advantage_R)
        loss += torch.where(advantage_R < 0, dual_R, clipped_R).sum()
    return loss / terms.num_tokens


def trapo(terms):
    # Rows 2 and 3 begin with the same four tokens of the solution.
    begin = (0, 0, 4, 4)
    rows = each(0.75, -0.25, -0.25, -0.25)
    surrogate = sum(terms.unclipped(row, a)[begin[row] :].sum() for row, a in rows) / 88 / 4
    entropy = sum(terms.entropy[row][begin[row] :].sum() for row in range(4)) / 88 / 4
    prefix = terms.own[2][:4].exp()
    return surrogate - (prefix / prefix.detach().clamp(min=0.1)).sum() / 88 / 4 - 0.0003 * entropy


def relift(terms):
    rows = each(0.75, -0.25, -0.25, -0.25)
    return sum(terms.clipped(row, a, high=0.28).sum() for row, a in rows) / terms.num_tokens


def seele(terms, kl=Terms.k3_with_the_gradient_of_k2, surrogate=None):
    if surrogate is None:
        surrogate = sum(terms.clipped(row, a).sum() for row, a in each(0.5, 0.5, -0.5, -0.5)) / 88 / 4
    probability = sum(terms.hint[row].sum().exp() for row in range(4)) / 4
    return surrogate + 0.001 * sum(kl(terms, row).sum() for row in range(4)) / 88 / 4 - 0.001 * probability


def seele_paper(terms):
    return seele(terms, kl=Terms.k3)


def luffy(terms):
    # The solution is right: mean 1/2 over all four.
    surrogate = sum(terms.unclipped(row, a).sum() for row, a in each(0.5, -0.5, -0.5)) / 88 / 4
    entropy = sum(terms.entropy[row].sum() for row in range(3)) / 88 / 4
    return surrogate + terms.shaped(3, torch.tensor(0.5)).sum() / 88 / 4 - 0.0003 * entropy


def rl_sft_loss(terms):
    # Mean 1/3 over the policy's own.
    surrogate = sum(terms.unclipped(row, a).sum() for row, a in each(2 / 3, -1 / 3, -1 / 3)) / 88 / 4
    entropy = sum(terms.entropy[row].sum() for row in range(3)) / 88 / 4
    return surrogate - 0.125 * terms.own[3].mean() - 0.0003 * entropy


def uft(terms, surrogate=None):
    # Two of four are right: mean 1/2, standard deviation 1/sqrt(3). Means over all tokens of their kind.
    rows = each(*(x / (3**-0.5 + 1e-6) for x in (0.5, 0.5, -0.5, -0.5)))
    if surrogate is None:
        surrogate = sum(terms.clipped(row, a).sum() for row, a in rows) / terms.num_tokens
    kl, entropy = (
        sum(of(row).sum() for row in range(4)) / terms.num_tokens
        for of in (terms.k3, terms.entropy.__getitem__)
    )
    imitation = -sum(terms.hint[row].sum() for row in range(4)) / sum(map(len, terms.hint))
    return surrogate + 0.001 * (kl - entropy + imitation)


def prefix_rft(terms):
    # Two of the other three are wrong, so mean 1/3; the continuation keeps its reward, the prefix 1 - 1/3.
    first = torch.tensor([2 / 3] * 4 + [1.0] * 3)
    rows = [(0, first), *((row + 1, a) for row, a in each(2 / 3, -1 / 3, -1 / 3))]
    return sum(terms.clipped(row, a).sum() for row, a in rows) / 88 / 4


def milestones(terms):
    # One milestone before the answer; both pass rates of other problems are 1/2, for two rollouts.
    passed, failed = 1 - (2 + 1) / 5, 0 - (3 + 1) / 5
    right, wrong = 1 - (0 + 1) / 4, 0 - (1 + 1) / 4
    rows = [(passed, right), (failed, 0.0), (passed, wrong), (passed, wrong)]
    loss = 0.0
    for row, (first, others) in enumerate(rows):
        size = len(terms.own[row])
        for advantage, where in ((first, slice(0, 1)), (others, slice(1, size if row < 3 else 3))):
            loss += terms.clipped(row, torch.tensor(advantage))[where].sum() / 88 / 4
    return loss


def seele_by_milestones(terms):
    return seele(terms, surrogate=milestones(terms))


def uft_by_milestones(terms):
    return uft(terms, surrogate=milestones(terms) * 88 * 4 / terms.num_tokens)


FORMULAS = dict(zip(CREDITED, (seele_by_milestones, uft_by_milestones), strict=True))


@pytest.mark.parametrize(
    ("method", "formula"),
    # ExGRPO's replayed success has the role of LUFFY's solution in the group.
    [
        (name, luffy if name == "exgrpo" else FORMULAS.get(name) or globals()[name])
        for name in METHODS_OF_ROWS
    ],
    ids=METHODS_OF_ROWS,
)
def test_loss_and_gradient_are_those_of_the_formula(method, formula):
    # Response lengths differ, so that a mean over tokens is not one over sequences.
    batch = Batch(method, lengths=(3, 2, 4, 1))
    value, _ = batch.loss()
    expected = formula(Terms(batch))
    assert value.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-8)
    (gradient_TV,) = torch.autograd.grad(batch.loss()[0], batch.logits_TV)
    (expected_TV,) = torch.autograd.grad(formula(Terms(batch)), batch.logits_TV)
    torch.testing.assert_close(gradient_TV, expected_TV, rtol=1e-4, atol=1e-8)


def test_a_replayed_success_counts_as_a_rollout_of_advantage_one_on_its_own_tokens():
    old = rollout(3, True, hint_steps=2, tokens=(5, 8), log_prob=-0.5, origin=Origin.REPLAY)
    rollouts = [rollout(0, True), rollout(1, False), rollout(2, False), old]
    batch = Batch("drgrpo replay=successes", lengths=(3, 2, 4, 2), rollouts=rollouts)
    terms = Terms(batch)
    assert [len(row) for row in terms.own] == [3, 2, 4, 2] and len(terms.hint[3]) == 4
    value, metrics = batch.loss()
    # The hint before it, and the probabilities under which it was written, do not matter.
    replayed = -terms.own[3].sum() / 88 / 4
    assert metrics["off_policy_loss"].aggregate() == pytest.approx(replayed.item(), rel=1e-5)
    others = sum(terms.clipped(row, a).sum() for row, a in each(2 / 3, -1 / 3, -1 / 3)) / 88 / 4
    assert value.item() == pytest.approx((others + replayed).item(), rel=1e-5)


def test_two_micro_batches_add_up_to_one():
    for method in METHODS_OF_ROWS:
        whole = Batch(method)
        value, _ = whole.loss()
        parts = 0.0
        for rows in ([0, 1], [2, 3]):
            part = Batch(method)
            columns = {name: part.fields[name] for name in part.fields.keys()}  # noqa: SIM118
            nested = {name: column for name, column in columns.items() if isinstance(column, torch.Tensor)}
            picked = part.fields.exclude(*nested)[rows]
            for name, column in nested.items():
                picked[name] = jagged([column.unbind()[row] for row in rows])
            output = {
                name: jagged([values.unbind()[row] for row in rows])
                for name, values in (("log_probs", whole.log_probs), ("entropy", whole.entropy))
            }
            loss, _ = part.loss_function(model_output=output, data=picked)
            parts += loss.item()
        assert parts == pytest.approx(value.item(), rel=1e-5, abs=1e-7), method


# Weights between engine and trainer (seele.rollout_correction)


class Store:
    """A TransferQueue with one batch."""

    def __init__(self, fields):
        self.fields = fields

    def kv_batch_get(self, *, select_fields, **_):
        return {name: self.fields[name] for name in select_fields}

    def kv_batch_put(self, *, fields, **_):
        for name, column in fields.items():
            self.fields[name] = column


@pytest.mark.parametrize(
    ("method", "row", "expected"),
    [
        pytest.param("luffy", 3, [0.5] * 7, id="a solution in the surrogate"),
        pytest.param("rl_sft_loss", 3, [0.0] * 7, id="a solution that is imitated"),
        pytest.param("trapo", 2, [0.0] * 4 + [-0.25] * 3, id="a prefix that is imitated"),
        pytest.param("grpo replay=successes", 3, [0.0] * 3, id="a success that is imitated"),
    ],
)
def test_tokens_whose_loss_reads_no_advantage_have_none(method, row, expected, monkeypatch):
    rollouts = rollouts_of(method)
    if "replay" in method:
        rollouts[3] = rollout(3, True, origin=Origin.REPLAY)
    config, rows = rows_of(method, rollouts=rollouts)
    settings = read_settings(config)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    actor = dataclasses.replace(actor, use_kl_loss=False, entropy_coeff=0.0)
    read = weight_columns(actor, LossTerms(settings))
    store = Store({name: rows.fields[name] for name in ("response_mask", *{OFF_POLICY_MASK, *read[1:]})})
    monkeypatch.setattr(columns, "tq", store)
    batch = KVBatchMeta(keys=rows.keys, partition_id="train", tags=rows.tags)
    write_advantages(batch, build_source(settings.off_policy))
    assert values(store.fields, "advantages")[row] == pytest.approx(expected)
    # The update computes the row all the same.
    assert len(read) > 1 and have_weight(store.fields, read)[row]


def test_prefixes_learn_from_their_tokens_of_highest_entropy_over_the_batch(monkeypatch):
    # Two of six tokens; the first prefix continues right and the second wrong, the others are wrong.
    rollouts = [rollout(i, i == 0, hint_steps=hint) for i, hint in enumerate((2, 1, 0, 0))]
    config, rows = rows_of("prefix_rft", rollouts=rollouts)
    store = Store({name: rows.fields[name] for name in ("response_mask", OFF_POLICY_MASK)})
    entropies = [[0.1, 0.9, 0.8, 0.2, 5, 5, 5], [0.3, 0.7, 5, 5, 5], [5] * 3, [5] * 3]
    store.fields["entropy"] = jagged([torch.tensor(row, dtype=torch.float) for row in entropies])
    monkeypatch.setattr(columns, "tq", store)
    settings = dataclasses.replace(read_settings(config).off_policy, entropy_share=1 / 3)
    write_advantages(
        KVBatchMeta(keys=rows.keys, partition_id="train", tags=rows.tags), build_source(settings)
    )
    assert values(store.fields, "advantages") == [
        [0, 0.25, 0.25, 0, *[0.5] * 3], [0, 0, *[-0.5] * 3], [0] * 3, [0] * 3
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "kept", "changed"),
    [
        ("prefix_rft", "old_log_probs", "rollout_log_probs"),
        ("trapo", "old_log_probs", "rollout_log_probs"),
        ("exgrpo", "rollout_log_probs", "old_log_probs"),
        ("luffy", "rollout_log_probs", "old_log_probs"),
    ],
)
def test_engine_and_trainer_agree_on_tokens_that_the_policy_did_not_write(method, kept, changed, monkeypatch):
    fields = Batch(method).fields
    fields["old_log_probs"] = jagged(
        [torch.full_like(row, -9) for row in fields["rollout_log_probs"].unbind()]
    )
    rows = [*zip(*(values(fields, name) for name in (OFF_POLICY_MASK, kept, changed)), strict=True)]
    monkeypatch.setattr(columns, "tq", Store(fields))
    source = build_source(read_settings(config_of(method)).off_policy)
    batch = KVBatchMeta(keys=[*"abcd"], partition_id="train", tags=[{}] * 4)
    exchange_log_probs(batch, has_log_probs=source.has_log_probs)
    assert values(fields, kept) == [own for _, own, _ in rows]
    assert values(fields, changed) == [
        [own if is_other else others for is_other, own, others in zip(*row, strict=True)] for row in rows
    ]


# Ratio of each token's probability in the trainer to that in the engine.
RATIOS = [[1.5, 4.0, 0.5], [0.5, 1.0, 1.0], [3.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
WEIGHTS = {
    ("tis", "token"): [[1.5, 2, 0.5], [0.5, 1, 1], [2, 1, 1], [1, 1, 1]],
    ("mis", "token"): [[1.5, 0, 0.5], [0.5, 1, 1], [0, 1, 1], [1, 1, 1]],
    # Products over the response: 3, 1/2, 3, 1.
    ("tis", "sequence"): [[2] * 3, [0.5] * 3, [2] * 3, [1] * 3],
    ("mis", "sequence"): [[0] * 3, [0.5] * 3, [0] * 3, [1] * 3],
}


def corrected(method, kind, level, monkeypatch):
    """Return a batch whose trainer differs from the engine by ``RATIOS`` where the policy wrote, with weights
    as in the trainer.
    """
    batch = Batch(method)
    fields, config = batch.fields, config_of(method)
    old = [row.clone() for row in fields["rollout_log_probs"].unbind()]
    for position, ratios in enumerate(RATIOS):
        others = fields[OFF_POLICY_MASK].unbind()[position] if OFF_POLICY_MASK in fields else None
        own = torch.ones(len(old[position]), dtype=torch.bool) if others is None else others == 0
        old[position][own] += torch.tensor(ratios).log()[: int(own.sum())]
    fields["old_log_probs"] = jagged(old)
    settings = dataclasses.replace(
        read_settings(config), rollout_correction=kind, rollout_correction_level=level
    )
    verls = OmegaConf.merge(config.algorithm.rollout_correction, verl_rollout_correction(settings))
    read = fields.select("old_log_probs", "rollout_log_probs", "response_mask").to_padded_tensor()
    data, _ = compute_rollout_correction_and_add_to_batch(DataProto(batch=read), verls)
    weights = response_to_nested(data.batch["rollout_is_weights"], fields["response_mask"])
    fields["rollout_is_weights"] = weights
    if OFF_POLICY_MASK in fields:
        monkeypatch.setattr(columns, "tq", Store(fields))
        weigh_on_policy_tokens_only(KVBatchMeta(keys=[*"abcd"], partition_id="train", tags=[{}] * 4))
    return batch


@pytest.mark.parametrize(("kind", "level"), WEIGHTS)
def test_weights_are_truncated_or_masked(kind, level, monkeypatch):
    batch = corrected("grpo", kind, level, monkeypatch)
    for row, expected in zip(values(batch.fields, "rollout_is_weights"), WEIGHTS[kind, level], strict=True):
        assert row == pytest.approx(expected, rel=1e-5)


class WeightedTerms(Terms):
    """The surrogate times the weights of ``WEIGHTS``, which are 1 on tokens that the policy did not write."""

    def __init__(self, batch, weights):
        super().__init__(batch)
        self.weights = [torch.tensor([1.0] * len(row)) for row in self.own]
        for row, (own, others) in enumerate(zip(weights, self._others(batch), strict=True)):
            self.weights[row][~others] = torch.tensor(own, dtype=torch.float)[: int((~others).sum())]

    def _others(self, batch):
        if OFF_POLICY_MASK in batch.fields:
            return [row.bool() for row in batch.fields[OFF_POLICY_MASK].unbind()]
        return [torch.zeros(len(row), dtype=torch.bool) for row in self.own]

    def clipped(self, row, advantage, **high):
        return self.weights[row] * super().clipped(row, advantage, **high)

    def unclipped(self, row, advantage):
        return self.weights[row] * super().unclipped(row, advantage)


@pytest.mark.parametrize(("kind", "level"), WEIGHTS)
@pytest.mark.parametrize(
    ("method", "formula"),
    [("drgrpo", drgrpo), ("dapo", dapo), ("uft", uft), ("luffy", luffy), ("prefix_rft", prefix_rft)],
)
def test_weights_reach_what_the_policy_wrote_and_nothing_else(method, formula, kind, level, monkeypatch):
    batch = corrected(method, kind, level, monkeypatch)
    # The reference stays at the old policy, which the KL terms of the formulas use.
    batch.fields["ref_log_prob"] = batch.fields["old_log_probs"]
    value, _ = batch.loss()
    terms = WeightedTerms(batch, WEIGHTS[kind, level])
    assert value.item() == pytest.approx(formula(terms).item(), rel=1e-5, abs=1e-8)
    assert formula(terms).item() != pytest.approx(formula(Terms(batch)).item(), rel=1e-5)
