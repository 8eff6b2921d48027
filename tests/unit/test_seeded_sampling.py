"""Noise of seeded requests, drawn for a whole batch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from seele_verl.cpu.seeded_sampling import GAMMA, exponential_noise, mix  # noqa: E402


def test_the_words_are_those_of_splitmix64():
    # Its first five outputs from the seed 1234567, as published with the generator's Java and C versions.
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    states = np.uint64(1234567) + np.arange(1, 6, dtype=np.uint64) * GAMMA
    assert mix(states).tolist() == published


def test_noise_depends_on_seed_position_and_token_alone():
    seeds_R, positions_R = np.array([5, 9, 2**62], dtype=np.uint64), np.array([0, 3, 100], dtype=np.uint64)
    noise_RV = exponential_noise(seeds_R, positions_R, 50)
    for row in range(3):
        alone_RV = exponential_noise(seeds_R[row : row + 1], positions_R[row : row + 1], 50)
        assert torch.equal(alone_RV[0], noise_RV[row])
    assert torch.equal(exponential_noise(seeds_R, positions_R, 20), noise_RV[:, :20])


def test_noise_is_exponential_and_independent_in_every_direction():
    seeds_R = np.arange(400, dtype=np.uint64).repeat(50)  # neighbours: the worst seeds there are
    positions_R = np.tile(np.arange(50, dtype=np.uint64), 400)
    noise = exponential_noise(seeds_R, positions_R, 64).double().view(400, 50, 64)
    assert noise.min() > 0 and noise.isfinite().all()
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
