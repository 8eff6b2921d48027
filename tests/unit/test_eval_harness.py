"""Our samples beside those of lm-evaluation-harness, paired by prompt."""

import json

import pytest

from seele.errors import ConfigError, DataError
from seele.records import Finish, GradeReason
from seele_eval.harness import agree, greedy_by_prompt, main, read_samples
from seele_eval.ledger import Ledger
from seele_eval.predictions import Prediction


def write_ours(folder, *samples, template_text="Q: {question} A:"):
    """An evaluation with (question, text, correct, temperature) samples."""
    with Ledger(folder, {"template_text": template_text}) as ledger:
        for number, (question, text, correct, temperature) in enumerate(samples):
            ledger.append(
                Prediction(
                    benchmark="b", temperature=temperature, instance_id=f"p{number}", level=0, sample=0,
                    question=question, answer="1", text=text, extracted=text, correct=correct,
                    reason=GradeReason.CORRECT if correct else GradeReason.WRONG, finish=Finish.STOP,
                    response_tokens=1,
                )
            )  # fmt: skip
    return folder


def write_theirs(path, *samples):
    """Samples (prompt, text, exact match), each as lm_eval 0.4 logs it."""
    rows = [
        {
            "doc_id": number, "doc": {}, "target": "1",
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}},
            "resps": [[text]], "filtered_resps": [text], "filter": "boxed", "exact_match": match,
        }
        for number, (prompt, text, match) in enumerate(samples)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


OURS = [("1", "a", True, 0.0), ("2", "b", False, 0.0), ("3", "c", True, 0.0), ("4", "x", True, 0.6)]
THEIRS = [("Q: 3 A:", "c", 0.0), ("Q: 2 A:", "other", 1.0), ("Q: 1 A:", "a", 1.0), ("Q: 9 A:", "z", 1.0)]


def test_prompts_responses_and_verdicts_are_counted_apart(tmp_path):
    ours = greedy_by_prompt(write_ours(tmp_path / "out", *OURS))
    found = agree("x", ours, read_samples(write_theirs(tmp_path / "x.jsonl", *THEIRS)))
    assert (found.theirs, found.paired, found.same_texts, found.same_verdicts) == (4, 3, 2, 1)
    assert (found.our_accuracy, found.their_accuracy) == (2 / 3, 2 / 3)
    [(mine, logged)] = found.disputed
    assert (mine.instance_id, logged.text) == ("p2", "c")


def test_the_command_lists_what_a_person_should_look_at(tmp_path, capsys):
    out, samples = write_ours(tmp_path / "out", *OURS), write_theirs(tmp_path / "x.jsonl", *THEIRS)
    assert main([str(out), str(samples)]) == 0
    assert "- b p2: 'c' against '1' is right for us and wrong for them" in capsys.readouterr().out


def test_other_prompts_are_shown_side_by_side(tmp_path):
    ours = greedy_by_prompt(write_ours(tmp_path / "out", *OURS))
    with pytest.raises(DataError, match=r"none of its 1 prompts is one of our 3; the first is 'Q:1'"):
        agree("x", ours, read_samples(write_theirs(tmp_path / "x.jsonl", ("Q:1", "a", 1.0))))


@pytest.mark.parametrize("line", ["", '{"doc_id": 0}', '{"arguments": {}, "resps": [], "acc": 1.0}'])
def test_a_file_without_generated_samples_is_refused(tmp_path, line):
    (tmp_path / "x.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=r"x.jsonl"):
        read_samples(tmp_path / "x.jsonl")


def test_a_template_that_only_the_tokenizer_knows_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="evaluate with a named one"):
        greedy_by_prompt(write_ours(tmp_path / "out", *OURS, template_text=None))
