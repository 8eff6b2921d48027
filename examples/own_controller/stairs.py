"""A staircase: a longer hint after a round below the target accuracy, else a shorter one."""

from seele.hints import SequentialController, nearest_legal


class Stairs(SequentialController):
    """Remember one hint ratio for each problem and move it by ``stride`` after every round."""

    def __init__(self, *, target_accuracy, start=0.5, stride=0.2):
        self.target, self.start, self.stride = target_accuracy, start, stride
        self.ratios = {}

    def next_hint_ratio(self, instance_id, *, round_index, legal_ratios):
        return nearest_legal(self.ratios.get(instance_id, self.start), legal_ratios)

    def observe(self, instance_id, *, hint_ratio, num_correct, num_rollouts):
        step = self.stride if num_correct / num_rollouts < self.target else -self.stride
        self.ratios[instance_id] = min(max(hint_ratio + step, 0.0), 1.0)

    def state_dict(self):
        return {**super().state_dict(), "ratios": dict(self.ratios)}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.ratios = dict(state["ratios"])

    def metrics(self):
        return {"mean_ratio": sum(self.ratios.values()) / max(len(self.ratios), 1)}
