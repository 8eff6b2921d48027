"""DAPO's penalty, METHODS' vectors: limit 2,048, buffer 512, factor 1."""

import pytest

from seele.reward.overlong import overlong_penalty


@pytest.mark.parametrize(("tokens", "penalty"), [(10, 0.0), (1536, 0.0), (1792, -0.5), (2048, -1.0)])
def test_the_penalty_falls_over_the_buffer(tokens, penalty):
    assert overlong_penalty(tokens, max_response_tokens=2048, buffer_tokens=512, factor=1.0) == penalty


@pytest.mark.parametrize("buffer", [0, 2049])
def test_a_buffer_that_is_none_or_longer_than_the_limit_is_refused(buffer):
    with pytest.raises(ValueError, match=f"1 to 2048 tokens, got {buffer}"):
        overlong_penalty(1, max_response_tokens=2048, buffer_tokens=buffer, factor=1.0)
