"""Model FLOPs of a run's tokens (arXiv:2001.08361, section 2.1)."""


def model_flops(
    parameters: int,
    *,
    prefilled_tokens: float,
    generated_tokens: float,
    trained_tokens: float,
    scored_tokens: float,
) -> float:
    """2 per parameter and token for a forward pass, 6 for forward and backward.

        2 N (prefilled + generated + scored) + 6 N trained

    Args:
        parameters: N, of the model.
        prefilled_tokens: Prompt tokens that the engine computed.
        generated_tokens: Tokens that it generated.
        trained_tokens: Tokens of the sequences that went through the update, each time counted.
        scored_tokens: Tokens of the sequences that went through a pass for log-probabilities alone, each time
            counted.
    """
    forward = 2.0 * parameters * (prefilled_tokens + generated_tokens + scored_tokens)
    return forward + 6.0 * parameters * trained_tokens
