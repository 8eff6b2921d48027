"""Noise for requests that have seeds of their own, all of them at once."""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def exponential_noise(
    seeds_N: NDArray[np.uint64], draws_N: NDArray[np.uint64], size: int
) -> NDArray[np.float32]:
    """(N, size) exponential variates with mean 1; row n is draw ``draws_N[n]`` of stream ``seeds_N[n]``.

    SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, doi:10.1145/2660193.2660195) as a function of the
    position in its stream, so that no row depends on any other. Streams begin at the mixed seed.
    """
    with np.errstate(over="ignore"):
        first_N = _mix(seeds_N) + draws_N * np.uint64(size) * _GOLDEN
        bits_NV = _mix(first_N[:, None] + np.arange(1, size + 1, dtype=np.uint64) * _GOLDEN)
    # 24 bits, the middle of each interval: never 0 and never 1.
    uniform_NV = ((bits_NV >> np.uint64(40)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24)
    noise_NV: NDArray[np.float32] = -np.log(uniform_NV)
    return noise_NV


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
