"""Model FLOPs of a run's tokens (arXiv:2001.08361, section 2.1)."""


def model_flops(
    parameters: int,
    *,
    prefilled_tokens: float,
    generated_tokens: float,
    trained_tokens: float,
    passes_without_gradient: int,
) -> float:
    """2 per parameter and token for a forward pass, 6 for forward and backward.

        2 N (prefilled + generated) + (6 + 2 * passes_without_gradient) N trained

    Args:
        parameters: N, of the model.
        prefilled_tokens: Prompt tokens that the engine computed.
        generated_tokens: Tokens that it generated.
        trained_tokens: Tokens of the sequences that went through the update, each time counted.
        passes_without_gradient: Forward passes over each trained token beside the update's own.
    """
    rollout = 2.0 * parameters * (prefilled_tokens + generated_tokens)
    return rollout + (6.0 + 2.0 * passes_without_gradient) * parameters * trained_tokens
