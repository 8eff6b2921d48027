"""The checks of ``seele doctor --gpu`` themselves, on a CPU: sound parts pass, and broken ones do not."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele_verl.engine.model_runner import V2_ARCHITECTURES  # noqa: E402
from seele_verl.gpu_check import agreement, all_reduce, attention, bucket, engine, probabilities  # noqa: E402
from seele_verl.gpu_check.agreement import CheckFailed  # noqa: E402

VOCABULARY = 4096

# verl uses flash-attn's kernel if it is installed, even for tensors on a CPU.
without_flash_attn = pytest.mark.skipif(
    find_spec("flash_attn") is not None, reason="flash-attn's cross entropy runs only on GPUs"
)


def test_packed_sequences_agree_with_each_alone():
    assert attention.check("cpu").startswith("sdpa: log-probabilities 0.0")


def test_sequences_that_see_each_other_are_found(monkeypatch):
    """Without positions that restart, the row is one long sequence."""

    def one_sequence(model, ids_T, positions_T=None):
        return token_log_probs(model, ids_T)

    token_log_probs = attention.token_log_probs
    monkeypatch.setattr(attention, "token_log_probs", one_sequence)
    with pytest.raises(CheckFailed, match="log-probabilities"):
        attention.check("cpu")


@without_flash_attn
def test_verls_log_probabilities_are_right():
    said = probabilities.check("cpu", vocabulary=VOCABULARY)
    assert len(re.findall("from single precision", said)) == 6


def other_labels(function):
    return lambda logits, labels: function(logits, labels.roll(1))


def no_gradient_but_one_column(function):
    return lambda logits, labels: function(logits, labels).detach() + 0.0 * logits[:, 0]


def fewer_tokens(function):
    return lambda logits: function(logits[:, :-64])


@without_flash_attn
@pytest.mark.parametrize(
    ("name", "broken", "what"),
    [
        ("logprobs_from_logits", other_labels, "^log-probabilities"),
        ("logprobs_from_logits", no_gradient_but_one_column, "^their gradient"),
        ("entropy_from_logits_with_chunking", fewer_tokens, "^entropy"),
    ],
)
def test_wrong_probabilities_are_found(name, broken, what, monkeypatch):
    from verl.utils import torch_functional

    monkeypatch.setattr(torch_functional, name, broken(getattr(torch_functional, name)))
    with pytest.raises(CheckFailed, match=what):
        probabilities.check("cpu", vocabulary=VOCABULARY)


def test_two_ranks_add():
    assert all_reduce.check("cpu", elements=2**12).startswith("2 ranks add 0 MiB exactly")


def test_a_rank_that_fails_says_why():
    with pytest.raises(CheckFailed, match="RuntimeError: "):
        all_reduce.check("cpu", ranks=1, elements=-1)


def test_what_did_not_arrive_as_sent_is_named():
    arrived = dict.fromkeys(bucket.SHAPES, True)
    bucket.require_all(arrived, "cpu")
    with pytest.raises(CheckFailed, match="as sent: odd, last"):
        bucket.require_all(arrived | {"odd": False, "last": False}, "cpu")
    with pytest.raises(CheckFailed, match="as sent: large"):
        bucket.require_all(arrived, "cuda")
    del arrived["second"]
    with pytest.raises(CheckFailed, match="as sent: second"):
        bucket.require_all(arrived, "cpu")


class FakeEngine:
    """An engine that is a transformers model; it frees ``asleep_bytes`` while it sleeps."""

    def __init__(self, seed, asleep_bytes=0):
        self.load(seed)
        self.asleep_bytes, self.freed = asleep_bytes, 0

    def load(self, seed):
        self.model = agreement.in_precision(agreement.make_tiny_model(seed), torch.float32)

    def sleep(self, level):
        self.freed = self.asleep_bytes

    def reset_prefix_cache(self):
        pass

    @torch.no_grad()
    def generate(self):
        ids_T = torch.arange(40)
        return [(ids_T.tolist(), 10, agreement.token_log_probs(self.model, ids_T)[9:].tolist())]


@pytest.fixture
def variables(monkeypatch):
    names = (
        "VLLM_USE_V2_MODEL_RUNNER",
        "VERL_RAY_JOB_ID",
        "VERL_REPLICA_RANK",
        "VLLM_ENABLE_V1_MULTIPROCESSING",
    )
    for name in names:
        monkeypatch.setenv(name, "restored afterwards")


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize(
    ("seed_before", "seed_sent", "failure"),
    [
        pytest.param(1, 0, None, id="the weights arrive"),
        pytest.param(1, 1, "from single precision, but rounding", id="nothing arrives"),
        pytest.param(0, 0, "nothing is tested", id="it had the weights before"),
    ],
)
def test_an_engine_is_judged_by_the_weights_it_was_sent(seed_before, seed_sent, failure, monkeypatch):
    monkeypatch.setattr(engine, "_start", lambda folder, **_: FakeEngine(seed_before))
    monkeypatch.setattr(engine, "_generate", FakeEngine.generate)
    monkeypatch.setattr(engine, "_send_weights", lambda fake, model, **_: fake.load(seed_sent))
    if failure is None:
        assert "with dummy weights" in engine.check("cpu")
    else:
        with pytest.raises(CheckFailed, match=failure):
            engine.check("cpu")


@pytest.mark.usefixtures("variables")
def test_runner_v2_gets_a_model_that_a_run_may_give_it(monkeypatch):
    def start(folder, **_):
        raise CheckFailed(json.loads((Path(folder) / "config.json").read_text())["architectures"][0])

    monkeypatch.setattr(engine, "_start", start)
    with pytest.raises(CheckFailed) as seen:
        engine.check("cpu", runner=1)
    assert str(seen.value) in V2_ARCHITECTURES


def test_an_engine_that_keeps_its_cache_while_asleep_is_found(monkeypatch):
    for freed in (engine.CACHE_BYTES, engine.CACHE_BYTES // 2):
        fake = FakeEngine(0, asleep_bytes=freed)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda rank, fake=fake: (fake.freed, 2**33))
        if freed == engine.CACHE_BYTES:
            assert engine._sleep(fake, 2) == "asleep it frees 256 MiB"
        else:
            with pytest.raises(CheckFailed, match="freed 128 MiB"):
                engine._sleep(fake, 2)
