"""FLOPs of tokens, by hand."""

from seele.maths.flops import model_flops


def test_two_a_token_forward_and_six_with_backward():
    flops = model_flops(
        10, prefilled_tokens=3, generated_tokens=4, trained_tokens=5, passes_without_gradient=1
    )
    assert flops == 2 * 10 * 7 + 8 * 10 * 5
