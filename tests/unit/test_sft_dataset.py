"""Rows of supervised fine-tuning, token by token, and which of them a step and a rank train on."""

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import itertools
from types import SimpleNamespace

from seele.data.storage.schema import write_problems
from seele.records import Instance
from seele.rollout.solutions import encode_problem
from seele_models.tokenizer import byte_tokenizer
from seele_verl.sft.dataset import SolutionDataset, StepBatches

TOKENIZER = byte_tokenizer()


def problem(index: int) -> Instance:
    steps = ("7a+5=2\n", f"2b-{index}=9\n", "\\boxed{9}")
    return Instance(
        instance_id=f"p-{index}", data_source="chains", question=f"7 a+5 b-{index}", steps=steps, answer="9"
    )


@pytest.fixture
def dataset(tmp_path) -> SolutionDataset:
    write_problems(tmp_path / "train.parquet", [problem(i) for i in range(10)], split="train")
    return SolutionDataset(
        [str(tmp_path / "train.parquet")], tokenizer=TOKENIZER, config=SimpleNamespace(template="plain")
    )


def test_the_loss_is_on_the_solution_and_the_end_of_the_text_and_on_nothing_else(dataset):
    row = dataset[3]
    tokens, learnt = row["input_ids"].tolist(), row["loss_mask"].tolist()
    question, solution = "7 a+5 b-3\n", "7a+5=2\n2b-3=9\n\\boxed{9}"
    assert TOKENIZER.decode(tokens) == question + solution + TOKENIZER.eos_token
    # A byte is a token: ten of the question, then all of the solution and the end.
    assert learnt == [0] * len(question) + [1] * len(solution) + [1]
    assert row["position_ids"].tolist() == list(range(len(tokens)))


def test_tokens_are_those_of_the_prompt_and_of_the_longest_hint_and_what_follows_it(dataset):
    encoded = encode_problem(TOKENIZER, problem(3).question, problem(3).steps, "plain")
    hinted = encoded.prompt_ids + encoded.hint(2)
    tokens = dataset[3]["input_ids"].tolist()
    assert tokens[: len(hinted)] == hinted
    assert tokens[len(hinted) :] == [*encoded.step_ids[-1], TOKENIZER.eos_token_id]
    assert tokens[len(encoded.prompt_ids) :] == encoded.solution(TOKENIZER)


def batches(
    dataset, *, rank: int = 0, ranks: int = 1, after_step: int = 0, count: int = 4
) -> list[list[str]]:
    """The problems of the next ``count`` steps, by the digit in their question."""
    rows = StepBatches(dataset, batch_size=4, seed=5, rank=rank, ranks=ranks, collate=list)
    rows.steps_done = after_step
    texts = ([TOKENIZER.decode(row["input_ids"].tolist()) for row in batch] for batch in rows)
    return [[text[8] for text in batch] for batch in itertools.islice(texts, count)]


def test_ranks_divide_a_steps_problems(dataset):
    whole = batches(dataset)
    first, second = (batches(dataset, rank=rank, ranks=2) for rank in (0, 1))
    for step, problems in enumerate(whole):
        assert sorted(first[step] + second[step]) == sorted(problems)
        assert len(first[step]) == len(second[step]) == 2


@pytest.mark.parametrize("step", [1, 2, 3, 5])  # five steps are two epochs
def test_a_resumed_run_trains_on_what_the_other_one_would_have(dataset, step):
    assert batches(dataset, after_step=step, count=2) == batches(dataset, count=7)[step : step + 2]


def test_each_epoch_trains_on_every_problem_once_also_where_a_step_belongs_to_two(dataset):
    order = [problem for step in batches(dataset, count=5) for problem in step]
    assert sorted(order[:10]) == sorted(order[10:]) == list("0123456789")


def test_verl_finds_itself_in_an_epoch_that_has_not_ended(dataset):
    # It trains epochs step // len(loader) and later; 7 steps are three epochs less a remainder.
    loader = StepBatches(dataset, batch_size=4, seed=5, rank=0, ranks=1, collate=list)
    assert all(step // len(loader) < 3 for step in range(7))
