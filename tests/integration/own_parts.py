"""Parts as a user would write them: source, loss term, baseline, rewards, curriculum and callback."""

from seele.callbacks import Callback
from seele.losses.term import Axis, LossTerm
from seele.methods.sources import OffPolicySource
from seele.records import Completion, Finish


class AnswerSource(OffPolicySource):
    """Give each group only the boxed answer, as if another policy had written it."""

    adds_rollouts = True

    def given(self, instance, encoded, tokenizer, *, replayed=None):
        text = f"\\boxed{{{instance.answer}}}"
        token_ids = (*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id)
        log_probs = (-0.5,) * len(token_ids)
        return [Completion(text=text, token_ids=token_ids, log_probs=log_probs, finish=Finish.STOP)]


class FirstTokens(LossTerm):
    """Raise the probability of the first tokens of on-policy responses."""

    name = "own_loss"
    columns = {"first_tokens": Axis.RESPONSE}  # noqa: RUF012
    counted = ("first_tokens",)

    def __init__(self, *, first):
        self.first = first

    def columns_of(self, row):
        first = min(self.first, row.response_tokens)
        return {"first_tokens": [1.0] * first + [0.0] * (row.response_tokens - first)}

    def compute(self, batch):
        mask_BR = batch.response_column("first_tokens")
        loss = -(batch.log_probs_BR * mask_BR).sum() / batch.num_marked("first_tokens")
        return loss, {"own_tokens": mask_BR.sum()}


def on_policy_mean(group):
    """Rewards minus the mean reward of the policy's own responses."""
    return group.rewards_G - group.rewards_G[group.on_policy_G].mean()


def second_tier_helps(data_source, solution_str, ground_truth, extra_info):
    """Right are all rollouts under a chain's second tier, and un-hinted ones with an answer that is even."""
    if extra_info["hint"]:
        return "b" in extra_info["hint"]
    return int(ground_truth) % 2 == 0 and f"\\boxed{{{ground_truth}}}" in solution_str


def any_answer(data_source, solution_str, ground_truth, extra_info):
    """Right are all responses with an answer, so that there are successes whatever the policy knows."""
    return "\\boxed{" in solution_str


def answer_in_ascii(data_source, solution_str, ground_truth, extra_info):
    """Right are responses with the answer in ASCII; a broken character does not give its token back."""
    return solution_str.isascii() and f"\\boxed{{{ground_truth}}}" in solution_str


class SameProblems:
    """Roll out the first problems of the training data in every step."""

    name = "same_problems"
    epochs = None

    def __init__(self, rows, *, columns, seed):
        self.problems = range(len(rows))

    def draw(self, num_problems, *, postponed=(), pruned=()):
        return [problem for problem in self.problems if problem not in postponed][:num_problems]

    def observe(self, signal_of_problem):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

    def metrics(self):
        return {}


class Counter(Callback):
    """Count the run's steps, and write their number into each checkpoint."""

    steps = 0

    def on_step_end(self, step, metrics):
        self.steps += 1
        return {"counter/steps": self.steps}

    def on_checkpoint_saved(self, step, folder):
        (folder / "counted").write_text(str(self.steps))

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]
