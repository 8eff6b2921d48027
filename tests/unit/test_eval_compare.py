"""Two evaluations side by side, and one model over its training."""

import json

import pytest

from seele.errors import CheckpointError, DataError
from seele.records import Finish, GradeReason
from seele_eval.benchmarks import GENERAL
from seele_eval.compare import compare
from seele_eval.compare import main as compare_main
from seele_eval.curve import curve_table, curves_of, read_steps
from seele_eval.curve import main as curve_main
from seele_eval.ledger import Ledger
from seele_eval.predictions import Prediction


def write(folder, corrects, *, benchmark="b", temperature=0.0, question="?", finished=True, **conditions):
    """An evaluation whose problem n has the given verdicts; a sample without one is yet to be drawn."""
    with Ledger(folder, {"seed": 0, "weights_sha256": folder.name} | conditions) as ledger:
        for problem, verdicts in corrects.items():
            for sample, correct in enumerate(verdicts):
                if correct is None:
                    continue
                ledger.append(
                    Prediction(
                        benchmark=benchmark, temperature=temperature, instance_id=problem, level=0,
                        sample=sample, question=question, answer="1", text="", extracted=None,
                        correct=bool(correct),
                        reason=GradeReason.CORRECT if correct else GradeReason.WRONG, finish=Finish.STOP,
                        response_tokens=1,
                    )
                )  # fmt: skip
    if finished:
        (folder / "scores.json").write_text("{}")
    return folder


def test_differences_are_taken_problem_by_problem(tmp_path):
    first = write(tmp_path / "a", {"p": [1, 0], "q": [0, 0], "r": [1, 1], "s": [0, 0]})
    second = write(tmp_path / "b", {"s": [0, 0], "p": [1, 1], "q": [1, 0], "r": [0, 1]})
    [row] = compare(first, second).differences
    assert (row.problems, row.first, row.second) == (4, 3 / 8, 4 / 8)
    # +1/2, +1/2, -1/2, 0
    assert row.difference.value == pytest.approx(1 / 8)
    assert (row.better, row.worse) == (2, 1)
    assert row.difference.interval_95[0] < 0 < row.difference.interval_95[1]
    assert row.p_value > 0.5


def test_pairing_sees_what_two_separate_intervals_do_not(tmp_path):
    # Half of the problems are easy for both; the second model solves five more.
    easy = {f"p{n}": [n < 50] for n in range(100)}
    first = write(tmp_path / "a", easy)
    second = write(tmp_path / "b", easy | {f"p{n}": [True] for n in range(50, 58)})
    [row] = compare(first, second).differences
    assert row.difference.interval_95[0] > 0
    # Eight of eight in one direction: 2 / 2^8.
    assert row.p_value == pytest.approx(2 / 256, abs=0.004)
    assert row.difference.interval_95[1] - row.difference.interval_95[0] < 0.12


def test_an_evaluation_does_not_differ_from_itself(tmp_path):
    folder = write(tmp_path / "a", {"p": [1], "q": [0]})
    [row] = compare(folder, folder).differences
    assert (row.difference.value, row.difference.interval_95, row.p_value) == (0.0, (0.0, 0.0), 1.0)
    assert compare(folder, folder).notes == ()


def test_other_conditions_and_unpaired_problems_are_noted(tmp_path):
    first = write(tmp_path / "a", {"p": [1], "q": [0]})
    second = write(tmp_path / "b", {"p": [1], "x": [0], "y": [0]}, seed=1, template="qwen")
    comparison = compare(first, second)
    assert comparison.differences[0].problems == 1
    assert comparison.notes == (
        "seed was 0 and is 1",
        "template was None and is 'qwen'",
        "b: 3 problems were answered by only one of the two and are left out",
    )
    assert "- seed was 0 and is 1" in comparison.text()


def test_problems_that_lack_samples_are_left_out(tmp_path):
    """Short responses come back first, and are right more often."""
    drawn = {f"p{n}": [n % 2, 0, 1, n % 2] for n in range(20)}
    first = write(tmp_path / "a", drawn)
    killed = {name: [verdict or None for verdict in verdicts] for name, verdicts in drawn.items()}
    second = write(tmp_path / "b", killed | {"p0": drawn["p0"], "p1": drawn["p1"]}, finished=False)
    comparison = compare(first, second)
    [row] = comparison.differences
    assert (row.problems, row.difference.value) == (2, 0.0)
    assert comparison.notes == (
        f"{second}: unfinished, for it holds no scores.json",
        "b: 18 problems lack samples and are left out",
    )


def test_pass_at_k_is_compared_on_the_same_problems_up_to_the_smaller_number_of_samples(tmp_path):
    first = write(tmp_path / "a", {"p": [1, 0, 0, 0], "q": [0, 0, 0, 0], "only": [1, 1, 1, 1]})
    second = write(tmp_path / "b", {"p": [1, 1], "q": [1, 0]})
    comparison = compare(first, second)
    # A: p is solved by one of four, q never. B: p by both, q by one of two.
    assert [(each.k, each.first.value, each.second.value) for each in comparison.attempts] == [
        (1, 1 / 8, 3 / 4), (2, 1 / 4, 1.0),
    ]  # fmt: skip
    assert [each.difference.value for each in comparison.attempts] == [5 / 8, 3 / 4]
    assert "B pass@k % |" in comparison.text()
    assert compare_main([str(first), str(second), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/pass_at_k.png").read_bytes().startswith(b"\x89PNG")
    assert compare(first, write(tmp_path / "c", {"p": [1]})).attempts == ()


def test_other_numbers_of_samples_are_compared_and_noted(tmp_path):
    first = write(tmp_path / "a", {"p": [1, 0, 1, 0], "q": [0, 0, 0, 0]})
    comparison = compare(first, write(tmp_path / "b", {"p": [1, 1], "q": [0, 0]}))
    assert comparison.differences[0].difference.value == pytest.approx(0.25)
    assert comparison.notes == ("b: A has 4 samples of each problem, B 2",)


def test_other_problems_with_the_same_ids_are_left_out(tmp_path):
    first = write(tmp_path / "a", {"p": [1], "q": [0]})
    second = write(tmp_path / "b", {"p": [1], "q": [0]}, question="another?")
    with pytest.raises(
        DataError, match=r"in common.*b: 2 problems have another question or reference answer"
    ):
        compare(first, second)


def test_averages_need_all_benchmarks_of_their_group(tmp_path):
    for folder, verdict in ((tmp_path / "a", 0), (tmp_path / "b", 1)):
        for name in GENERAL[:2]:
            write(folder, {"p": [verdict], "q": [1]}, benchmark=name)
    assert compare(tmp_path / "a", tmp_path / "b").averages == {}
    for folder in (tmp_path / "a", tmp_path / "b"):
        write(folder, {"p": [1], "q": [1]}, benchmark=GENERAL[2])
    assert compare(tmp_path / "a", tmp_path / "b").averages["general"].value == pytest.approx(
        (0.5 + 0.5 + 0) / 3
    )


def test_nothing_in_common_is_refused(tmp_path):
    first = write(tmp_path / "a", {"p": [1]})
    with pytest.raises(DataError, match="no problem at the same temperature in common"):
        compare(first, write(tmp_path / "b", {"p": [1]}, temperature=0.6))
    with pytest.raises(DataError, match="no problem at the same temperature in common"):
        compare(first, write(tmp_path / "c", {"q": [1]}))
    with pytest.raises(CheckpointError, match="expected the output folder of an evaluation"):
        compare(first, tmp_path / "none")


def test_the_command_prints_a_table_and_writes_what_it_is_asked_to(tmp_path, capsys):
    first, second = write(tmp_path / "a", {"p": [1]}), write(tmp_path / "b", {"p": [0]})
    assert compare_main([str(first), str(second), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "| benchmark |  T | problems |" in printed and "-100.0" in printed
    text = (tmp_path / "out/comparison.md").read_text()
    assert text.startswith(printed) and "## Conditions of B" in text
    written = json.loads((tmp_path / "out/comparison.json").read_text())
    assert written["differences"][0]["worse"] == 1
    assert [each["weights_sha256"] for each in written["conditions"]] == ["a", "b"]
    assert compare_main([str(first), str(tmp_path / "none")]) == 2
    assert compare_main([str(first), str(second), "--out", str(tmp_path / "out/comparison.md")]) == 2
    assert "comparison.md is a file; expected a folder" in capsys.readouterr().err


# Several checkpoints


def write_step(folder, step, accuracy, **averages):
    path = folder / f"step_{step}" / "scores.json"
    path.parent.mkdir(parents=True)
    score = {
        "benchmark": "b", "temperature": 0.0, "accuracy": accuracy,
        "interval_95": [accuracy - 0.1, accuracy + 0.1],
    }  # fmt: skip
    written = {"scores": [score], "averages": {}, "conditions": {"seed": step}}
    for name, value in averages.items():
        written["averages"][name] = {"value": value, "interval_95": [value, value]}
    path.write_text(json.dumps(written))


def test_a_curve_is_in_order_of_steps_and_shows_gaps(tmp_path):
    for step, accuracy in ((100, 0.5), (20, 0.3), (3, 0.2)):
        write_step(tmp_path, step, accuracy, **({"math": 0.4} if step == 100 else {}))
    curves = curves_of(read_steps(tmp_path))
    assert [each.value for each in curves["b"].values()] == [0.2, 0.3, 0.5]
    lines = curve_table(curves).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["3", "20", "100"]
    assert lines[2].split("|")[3].strip() == "-" and "40.0" in lines[4]


def test_the_command_writes_table_numbers_and_picture(tmp_path, capsys):
    write_step(tmp_path, 1, 0.2)
    write_step(tmp_path, 2, 0.3)
    assert curve_main([str(tmp_path)]) == 0
    assert "20.0 (10.0 to 30.0)" in capsys.readouterr().out
    written = json.loads((tmp_path / "curve.json").read_text())
    assert written["curves"]["b"][1]["accuracy"] == 0.3
    assert written["conditions"]["step 2"] == {"seed": 2}
    assert '- step 2: {"seed": 2}' in (tmp_path / "curve.md").read_text()
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"scores": [{}]}'])
def test_damaged_scores_are_named(tmp_path, capsys, damage):
    write_step(tmp_path, 1, 0.2)
    (tmp_path / "step_1" / "scores.json").write_text(damage)
    assert curve_main([str(tmp_path)]) == 2
    assert "step_1/scores.json: is damaged" in capsys.readouterr().err


def test_a_folder_without_evaluated_steps_is_refused(tmp_path, capsys):
    assert curve_main([str(tmp_path)]) == 2
    assert "holds no step_N/scores.json" in capsys.readouterr().err
