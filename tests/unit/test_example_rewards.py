"""The examples of reward functions, as their pages say to use them."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from seele.config.settings import RewardConfig
from seele.records import Instance
from seele.reward.function_grader import open_grader

EXAMPLES = Path(__file__).parents[2] / "examples"
CHAIN = Instance(
    instance_id="chains-1",
    data_source="chains",
    question="7a+5b-3",
    steps=("7a+5=2\n", "2b-3=9\n", "\\boxed{9}"),
    answer="9",
)


def test_right_steps_before_the_first_mistake_earn_partial_credit():
    own = RewardConfig(grader=f"{EXAMPLES}/own_reward/reward.py:compute_score", kwargs={"most": 0.6})
    with open_grader(own) as grader:
        grader.try_on(CHAIN)
        grades = grader.grade_problems(
            [
                ("7a+5=2\n2b-3=9\n\\boxed{9}", CHAIN),
                ("7a+5=2\n2b-3=8\n\\boxed{8}", CHAIN),
                ("7a+5=3\n2b-3=9\n\\boxed{8}", CHAIN),
                ("no steps at all \\boxed{9}", CHAIN),
            ]
        )
        hinted = asyncio.run(grader.grade_rollout("2b-3=9\n\\boxed{8}", CHAIN, hint_steps=1))
    assert [grade.reward for grade in grades] == pytest.approx([1.0, 0.2, 0.0, 1.0])
    assert [grade.correct for grade in grades] == [True, False, False, True]
    assert [grade.extra["right_steps"] for grade in grades] == [3, 1, 0, 0]
    # One of the two steps behind the hint.
    assert (hinted.reward, hinted.extra["right_steps"]) == (pytest.approx(0.3), 1)


def test_a_judge_behind_a_server_scores_responses(server, monkeypatch):
    pytest.importorskip("openai", reason="the judge asks through the openai package, which vLLM brings")
    monkeypatch.setenv("JUDGE_URL", server.url)
    monkeypatch.setenv("JUDGE_MODEL", "stand-in")
    said = {
        "good": "Right. Score: 10",
        "half": "Score: 2? No. Score: 5",
        "odd": "I cannot say.",
        "more": "Score: 99",
    }
    server.answer = lambda prompt, seed: next(text for word, text in said.items() if word in prompt)
    judge = RewardConfig(
        grader=f"{EXAMPLES}/llm_judge/judge.py:compute_score",
        isolation="none",
        num_workers=4,
        time_limit_s=60.0,
        correct_from=0.5,
    )
    with open_grader(judge) as grader:
        grades = dict(zip(said, grader.grade_problems([(word, CHAIN) for word in said]), strict=True))
    assert {word: grade.reward for word, grade in grades.items()} == {
        "good": 1.0, "half": 0.5, "odd": 0.0, "more": 1.0
    }  # fmt: skip
    assert [grade.correct for grade in grades.values()] == [True, True, False, True]
    assert grades["odd"].extra == {"judged": 0.0, "verdict": "I cannot say."}
    asked = server.asked[0]
    assert asked["model"] == "stand-in" and asked["path"] == "/v1/chat/completions"
    assert "7a+5b-3" in asked["messages"][0]["content"] and "answer: 9" in asked["messages"][0]["content"]
    server.delay_s = 1.0
    late = replace(judge, time_limit_s=0.1)
    with open_grader(late) as grader:
        grade = grader.grade_problem("good", CHAIN)
    assert (grade.correct, grade.reason) == (False, "timeout")


@pytest.mark.parametrize("name", ["own_reward", "llm_judge"])
def test_an_examples_command_is_one_of_training(name):
    train = pytest.importorskip("seele_verl.train", reason="verl is not installed")
    from seele_verl.checks.preflight import check_settings

    page = (EXAMPLES / name / "README.md").read_text().replace("\\\n", " ")
    [command] = [line for line in page.splitlines() if "seele_verl.train" in line]
    overrides = command.split()[3:]
    assert check_settings(train.compose(overrides), overrides).reward.grader.startswith(f"examples/{name}/")


def test_an_example_is_short():
    for file in EXAMPLES.glob("*/*.py"):
        assert len(file.read_text().splitlines()) <= 40, file
