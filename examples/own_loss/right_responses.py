"""Negative log-likelihood of the policy's own right responses, in addition to the surrogate."""

from seele.losses.term import Axis, LossTerm


class RightResponses(LossTerm):
    """The mean over the tokens of all right responses in an update."""

    name = "right_response_loss"
    columns = {"right": Axis.RESPONSE}
    counted = ("right",)

    def __init__(self, *, shortest=1):
        self.shortest = shortest

    def columns_of(self, row):
        is_right = row.rollout.grade.correct and row.response_tokens >= self.shortest
        return {"right": [float(is_right)] * row.response_tokens}

    def compute(self, batch):
        right_BR = batch.response_column("right")
        loss = -(batch.log_probs_BR * right_BR).sum() / (batch.num_marked("right") or 1.0)
        return loss, {}
