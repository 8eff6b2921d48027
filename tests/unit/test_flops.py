"""FLOPs of tokens, by hand."""

from seele.maths.model_shapes import model_flops


def test_two_a_token_forward_and_six_with_backward():
    flops = model_flops(10, prefilled_tokens=3, generated_tokens=4, trained_tokens=5, scored_tokens=5)
    assert flops == 2 * 10 * 7 + 8 * 10 * 5


def test_a_second_epoch_scores_nothing_again():
    flops = model_flops(1, prefilled_tokens=0, generated_tokens=0, trained_tokens=200, scored_tokens=100)
    assert flops == 6 * 200 + 2 * 100
