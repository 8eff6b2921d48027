"""Samples on disk: appended whole, read again, never changed, and nobody else's."""

import json

import pytest

from seele.errors import CheckpointError, ConfigError
from seele.records import Finish, GradeReason
from seele_eval.ledger import Ledger
from seele_eval.predictions import Prediction, read_predictions

CONDITIONS = {"model": "here", "weights_sha256": {"w": "1"}, "seed": 0}


def prediction(sample, text="\\boxed{1}"):
    return Prediction(
        benchmark="b", temperature=0.6, instance_id="p", level=0, sample=sample, question="?", answer="1",
        text=text, extracted="1", correct=True, reason=GradeReason.CORRECT, finish=Finish.STOP,
        response_tokens=3,
    )  # fmt: skip


def fill(folder, *samples, conditions=CONDITIONS):
    with Ledger(folder, conditions) as ledger:
        for sample in samples:
            ledger.append(sample)


def test_what_is_appended_is_there_again(tmp_path):
    fill(tmp_path, prediction(0))
    fill(tmp_path, prediction(1))
    ledger = Ledger(tmp_path, CONDITIONS)
    assert list(ledger.done.values()) == [prediction(0), prediction(1)]
    assert list(ledger.done) == [("b", 0.6, "p", 0), ("b", 0.6, "p", 1)]
    assert read_predictions(tmp_path).conditions == CONDITIONS


@pytest.mark.parametrize("text", ["two\nlines", "line\u2028separator", "\ud800", "\x00", '"', "数学"])
def test_any_text_survives(tmp_path, text):
    fill(tmp_path, prediction(0, text))
    assert read_predictions(tmp_path).predictions == (prediction(0, text),)


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_that_was_cut_off_is_drawn_again_and_the_others_stay(tmp_path, cut):
    fill(tmp_path, prediction(0), prediction(1))
    path = tmp_path / "predictions.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    ledger = Ledger(tmp_path, CONDITIONS)
    assert path.read_bytes() == whole[:-cut], "reading changes nothing"
    assert list(ledger.done.values()) == [prediction(0)]
    with ledger:
        ledger.append(prediction(1))
    assert path.read_bytes() == whole


def test_a_file_that_was_cut_off_in_its_first_line_begins_anew(tmp_path):
    (tmp_path / "predictions.jsonl").write_text('{"conditio')
    fill(tmp_path, prediction(0))
    assert read_predictions(tmp_path).predictions == (prediction(0),)


@pytest.mark.parametrize("damage", ["{", "[]", '{"benchmark": "b"}', '{"reason": "no such"}'])
def test_damage_elsewhere_is_named_and_nothing_is_changed(tmp_path, damage):
    fill(tmp_path, prediction(0))
    path = tmp_path / "predictions.jsonl"
    head, line = path.read_text().splitlines()
    path.write_text(f"{head}\n{damage}\n{line}\n")
    with pytest.raises(CheckpointError, match="line 2 is damaged"):
        Ledger(tmp_path, CONDITIONS)


def test_a_file_without_conditions_is_not_gone_on_from(tmp_path):
    (tmp_path / "predictions.jsonl").write_text(json.dumps({"text": "?"}) + "\n")
    with pytest.raises(CheckpointError, match="holds no conditions"):
        Ledger(tmp_path, CONDITIONS)


def test_an_unfinished_evaluation_under_other_conditions_is_refused_with_what_differs(tmp_path):
    fill(tmp_path, prediction(0))
    with pytest.raises(ConfigError, match="seed was 0 and is 1"):
        Ledger(tmp_path, CONDITIONS | {"seed": 1})


def test_a_finished_one_is_set_aside_whole(tmp_path):
    fill(tmp_path, prediction(0))
    for round_number in (1, 2):
        (tmp_path / "scores.json").write_text("{}")
        (tmp_path / "scores.md").write_text("table")
        before = (tmp_path / "predictions.jsonl").read_bytes()
        conditions = CONDITIONS | {"seed": round_number}
        ledger = Ledger(tmp_path, conditions)
        assert ledger.done == {} and not (tmp_path / f"earlier_{round_number}").exists()
        with ledger:
            ledger.append(prediction(1))
        earlier = tmp_path / f"earlier_{round_number}"
        assert (earlier / "predictions.jsonl").read_bytes() == before
        assert (earlier / "scores.json").is_file() and (earlier / "scores.md").is_file()
        assert read_predictions(tmp_path).predictions == (prediction(1),)


def test_one_that_is_set_aside_never_meets_an_earlier_one(tmp_path):
    fill(tmp_path, prediction(0))
    (tmp_path / "scores.json").write_text("{}")
    (tmp_path / "earlier_2").mkdir()
    fill(tmp_path, prediction(1), conditions=CONDITIONS | {"seed": 1})
    assert (tmp_path / "earlier_3" / "predictions.jsonl").is_file()


def test_the_same_weights_elsewhere_are_the_same_model(tmp_path):
    fill(tmp_path, prediction(0))
    assert Ledger(tmp_path, CONDITIONS | {"model": "elsewhere"}).done


def test_scores_that_are_no_longer_of_all_samples_go(tmp_path):
    fill(tmp_path, prediction(0))
    (tmp_path / "scores.json").write_text("{}")
    fill(tmp_path, prediction(1))
    assert not (tmp_path / "scores.json").exists()


def test_two_evaluations_cannot_write_at_the_same_time(tmp_path):
    with Ledger(tmp_path, CONDITIONS), pytest.raises(ConfigError, match="another process"):
        fill(tmp_path, prediction(0))


def test_what_another_one_wrote_since_it_was_read_is_not_lost(tmp_path):
    stale = Ledger(tmp_path, CONDITIONS)
    fill(tmp_path, prediction(0))
    with pytest.raises(ConfigError, match="has written to it meanwhile"):
        stale.__enter__()
    assert read_predictions(tmp_path).predictions == (prediction(0),)
