"""A method in one file: how long a problem's hint is, and what a success under it is worth."""

from seele.hints import SequentialController, nearest_legal


class Halves(SequentialController):
    """Double a problem's hint after a round without a success, and halve it after one with successes only."""

    def __init__(self):
        self.ratios = {}

    def next_hint_ratio(self, instance_id, *, round_index, legal_ratios):
        return nearest_legal(self.ratios.get(instance_id, 0.5), legal_ratios)

    def observe(self, instance_id, *, hint_ratio, num_correct, num_rollouts):
        factor = {0: 2.0, num_rollouts: 0.5}.get(num_correct, 1.0)
        self.ratios[instance_id] = min(max(self.ratios.get(instance_id, 0.5), 0.1) * factor, 1.0)

    def state_dict(self):
        return {**super().state_dict(), "ratios": dict(self.ratios)}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.ratios = dict(state["ratios"])


def discounted(group):
    """Advantages, where a reward under half of the solution counts half."""
    worth_G = group.rewards_G * (1.0 - group.hint_ratio_G)
    return worth_G - worth_G.mean()
