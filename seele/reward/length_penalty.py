"""DAPO's soft penalty for responses near the length limit (arXiv:2503.14476, section 3.4)."""


def overlong_penalty(
    response_tokens: int, *, max_response_tokens: int, buffer_tokens: int, factor: float
) -> float:
    """The penalty that is added to a response's reward, at most 0.

        0 up to max - buffer tokens, then falling linearly to -factor at max

    Like ``DAPORewardManager`` of verl 0.9.1, with the same settings.

    Args:
        response_tokens: Length of the response.
        max_response_tokens: The limit; 20,480 in the paper.
        buffer_tokens: Length of the penalized interval, positive and at most the limit; 4,096 in the paper.
        factor: Largest penalty; 1 in the paper.

    Raises:
        ValueError: If the buffer is not in 1..max_response_tokens.
    """
    if not 0 < buffer_tokens <= max_response_tokens:
        raise ValueError(
            f"the overlong buffer must have 1 to {max_response_tokens} tokens, got {buffer_tokens}"
        )
    expected_tokens = max_response_tokens - buffer_tokens
    return min((expected_tokens - response_tokens) / buffer_tokens * factor, 0.0)
