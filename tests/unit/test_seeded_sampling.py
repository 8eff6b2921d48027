"""Noise of seeded requests, drawn for a whole batch."""

import pytest

torch = pytest.importorskip("torch")

from seele_verl.engine import seeded_sampling  # noqa: E402
from seele_verl.engine.seeded_sampling import (  # noqa: E402
    GAMMA,
    draw_tokens,
    exponential_noise,
    mix_32,
    mix_64,
    seeds_of,
)


def test_the_keys_are_those_of_splitmix64():
    # Its first five outputs from the seed 1234567, as published with the generator's Java and C versions.
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    states = 1234567 + torch.arange(1, 6, dtype=torch.int64) * GAMMA
    assert [word % 2**64 for word in mix_64(states).tolist()] == published


def test_the_words_are_those_of_murmurhash3():
    # The hash of an empty text is the mixed seed; published for the seeds 0, 1 and 2^32 - 1.
    words = mix_32(torch.tensor([0, 1, -1], dtype=torch.int32))
    assert [word % 2**32 for word in words.tolist()] == [0, 0x514E28B7, 0x81F16F39]


def test_noise_depends_on_seed_position_and_token_alone():
    seeds_R, positions_R = torch.tensor([5, -9, 2**62]), torch.tensor([0, 3, 100])
    tokens_V = torch.arange(50, dtype=torch.int32)
    noise_RV = exponential_noise(seeds_R, positions_R, tokens_V)
    for row in range(3):
        alone_RV = exponential_noise(seeds_R[row : row + 1], positions_R[row : row + 1], tokens_V)
        assert torch.equal(alone_RV[0], noise_RV[row])
    assert torch.equal(exponential_noise(seeds_R, positions_R, tokens_V[20:30]), noise_RV[:, 20:30])


def test_noise_is_exponential_and_independent_in_every_direction():
    seeds_R = torch.arange(400).repeat_interleave(50)  # neighbours: the worst seeds there are
    positions_R = torch.arange(50).repeat(400)
    noise = exponential_noise(seeds_R, positions_R, torch.arange(64, dtype=torch.int32))
    noise = noise.double().view(400, 50, 64)
    assert noise.min() > 0 and noise.max() < 17
    # Kolmogorov-Smirnov: the distance is below 1.63 / sqrt(n) in 99 of 100 samples.
    uniform = (-torch.expm1(-noise)).flatten().sort().values
    expected = (torch.arange(len(uniform)) + 0.5) / len(uniform)
    assert (uniform - expected).abs().max() < 1.63 / len(uniform) ** 0.5
    centred = noise - noise.mean()
    for first, second in (
        (centred[1:], centred[:-1]),
        (centred[:, 1:], centred[:, :-1]),
        (centred[:, :, 1:], centred[:, :, :-1]),
    ):
        correlation = (first * second).mean().item()
        assert abs(correlation) < 4 / first.numel() ** 0.5


def test_the_smallest_and_the_largest_word_give_noise_that_a_logarithm_takes(monkeypatch):
    monkeypatch.setattr(seeded_sampling, "mix_32", lambda words: words)
    monkeypatch.setattr(seeded_sampling, "mix_64", torch.zeros_like)
    zero_R, tokens_V = torch.tensor([0]), torch.tensor([0, 2**31 - 1], dtype=torch.int32)
    least, most = exponential_noise(zero_R, zero_R, tokens_V)[0].tolist()
    assert least == pytest.approx(2.0**-32) and 16 < most < 17


@pytest.mark.parametrize("block", [1, 7, 2**18])
def test_blocks_of_the_vocabulary_draw_what_the_whole_draws(block, monkeypatch):
    monkeypatch.setattr(seeded_sampling, "BLOCK_NUMBERS", block * 30)
    logits_RV = torch.randn(30, 100, generator=torch.Generator().manual_seed(0)) * 2
    seeds_R, positions_R = torch.arange(30), torch.arange(30) % 7
    noise_RV = exponential_noise(seeds_R, positions_R, torch.arange(100, dtype=torch.int32))
    drawn_R = draw_tokens(logits_RV, seeds_R, positions_R)
    assert torch.equal(drawn_R, (logits_RV - noise_RV.log()).argmax(dim=1))


def test_a_token_that_is_excluded_is_never_drawn():
    logits_RV = torch.full((2000, 9), float("-inf"))
    logits_RV[:, 4] = -30.0
    assert draw_tokens(logits_RV, torch.arange(2000), torch.zeros(2000, dtype=torch.int64)).unique() == 4


def test_the_gpus_function_compiles_as_one_graph_and_draws_the_same():
    first = torch.compile(seeded_sampling._first_to_ring, dynamic=True, fullgraph=True, backend="eager")
    logits_RV, tokens_V = torch.randn(5, 40), torch.arange(40, dtype=torch.int32)
    seeds_R, positions_R = torch.arange(5), torch.arange(5)
    drawn_R = first(logits_RV, tokens_V, seeds_R, positions_R)[1]
    assert torch.equal(drawn_R, draw_tokens(logits_RV, seeds_R, positions_R))


def test_a_request_without_a_seed_is_given_one():
    generators = {2: torch.Generator().manual_seed(7), 0: torch.Generator().manual_seed(-1)}
    first, second = seeds_of(generators, 4).tolist(), seeds_of(generators, 4).tolist()
    assert (first[0], first[2]) == (second[0], second[2]) == (-1, 7)
    assert first[1] != second[1] and first[3] != second[3]
