"""What ``seele doctor --gpu`` makes the GPUs of this node do; the seeded sampler on a GPU: one compiled
kernel, and the tokens that a CPU draws.
"""

import json
import sys

import torch

from seele_verl.engine.seeded_sampling import _compiled, draw_tokens, exponential_noise

REQUESTS, VOCABULARY, POSITIONS = 64, 151_936, 50


def test_the_noise_is_the_cpus_to_a_millionth():
    seeds_R, tokens_V = torch.arange(REQUESTS), torch.arange(VOCABULARY, dtype=torch.int32)
    here_RV = exponential_noise(seeds_R, seeds_R, tokens_V)
    there_RV = exponential_noise(seeds_R.cuda(), seeds_R.cuda(), tokens_V.cuda())
    torch.testing.assert_close(there_RV.cpu(), here_RV, rtol=1e-6, atol=1e-9)


def test_tokens_are_those_that_a_cpu_draws():
    logits_RV = torch.randn(REQUESTS, VOCABULARY, generator=torch.Generator().manual_seed(0)) * 3
    on_gpu_RV, seeds_R = logits_RV.cuda(), torch.arange(REQUESTS)
    different = 0
    for position in range(POSITIONS):
        positions_R = torch.full_like(seeds_R, position)
        here_R = draw_tokens(logits_RV, seeds_R, positions_R)
        there_R = draw_tokens(on_gpu_RV, seeds_R.cuda(), positions_R.cuda())
        different += int((here_R != there_R.cpu()).sum())
    # A tie to a millionth is met once in some hundred thousand draws.
    assert different <= 1


def test_a_batch_takes_no_memory_of_its_size():
    logits_RV, seeds_R = torch.randn(512, VOCABULARY, device="cuda"), torch.arange(512, device="cuda")
    draw_tokens(logits_RV, seeds_R, seeds_R)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    _compiled()(logits_RV, torch.arange(VOCABULARY, dtype=torch.int32, device="cuda"), seeds_R, seeds_R)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < logits_RV.nbytes / 10


def test_every_check_on_the_gpus_passes(finish):
    # It fails, and shows what the command printed, if a check does.
    said = finish([sys.executable, "-m", "seele.cli.main", "doctor", "--gpu", "--json", "--model", "tiny"])
    # Two engines on one GPU, four where there are two.
    assert len(json.loads(said)["gpu_checks"]) >= 6
