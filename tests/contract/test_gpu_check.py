"""The checks of ``seele doctor --gpu`` themselves, on a CPU: sound parts pass, and broken ones do not."""

import re

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele_verl.gpu_check import all_reduce, attention, bucket, probabilities  # noqa: E402
from seele_verl.gpu_check.agreement import CheckFailed  # noqa: E402

VOCABULARY = 4096


def test_packed_sequences_agree_with_each_alone():
    assert attention.check("cpu").startswith("sdpa: log-probabilities 0.0")


def test_sequences_that_see_each_other_are_found(monkeypatch):
    """Without positions that start anew, the row is one long sequence."""

    def one_sequence(model, ids_T, positions_T=None):
        return token_log_probs(model, ids_T)

    token_log_probs = attention.token_log_probs
    monkeypatch.setattr(attention, "token_log_probs", one_sequence)
    with pytest.raises(CheckFailed, match="log-probabilities"):
        attention.check("cpu")


def test_verls_log_probabilities_are_right():
    said = probabilities.check("cpu", vocabulary=VOCABULARY)
    assert len(re.findall("from single precision", said)) == 6


def other_labels(function):
    return lambda logits, labels: function(logits, labels.roll(1))


def no_gradient_but_one_column(function):
    return lambda logits, labels: function(logits, labels).detach() + 0.0 * logits[:, 0]


def fewer_tokens(function):
    return lambda logits: function(logits[:, :-64])


@pytest.mark.parametrize(
    ("name", "broken", "what"),
    [
        ("logprobs_from_logits", lambda f: lambda logits, labels: f(logits, labels.roll(1)), "log-prob"),
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
    bucket.require_all(arrived)
    with pytest.raises(CheckFailed, match="as sent: odd, last"):
        bucket.require_all(arrived | {"odd": False, "last": False})
    del arrived["second"]
    with pytest.raises(CheckFailed, match="as sent: second"):
        bucket.require_all(arrived)
