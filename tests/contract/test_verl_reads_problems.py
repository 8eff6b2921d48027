"""verl's own data set takes a file of problems as it is."""

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")


def test_verls_own_data_set_reads_a_file_of_problems(tmp_path):
    from omegaconf import OmegaConf
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from seele.data.storage.schema import write_problems
    from seele.records import Instance

    problems = [
        Instance(
            instance_id=f"toy-{n}",
            data_source="toy",
            question=f"What is {n}+1?",
            steps=("Add.\n", f"\\boxed{{{n + 1}}}")[: 2 * (n % 2)],
            answer=str(n + 1),
            revealed_at=2 if n % 2 else None,
        )
        for n in range(3)
    ]
    write_problems(tmp_path / "train.parquet", problems, split="train")
    vocabulary = {symbol: index for index, symbol in enumerate([*sorted(ByteLevel.alphabet()), "<end>"])}
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=[], unk_token="<end>", eos_token="<end>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    config = OmegaConf.create({"cache_dir": str(tmp_path / "cache"), "max_prompt_length": 64})
    rows = RLHFDataset(data_files=str(tmp_path / "train.parquet"), tokenizer=tokenizer, config=config)
    assert len(rows) == 3
    for row, problem in zip(rows, problems, strict=True):
        assert list(row["raw_prompt"]) == [{"role": "user", "content": problem.question}]
        assert row["reward_model"] == {"style": "rule", "ground_truth": problem.answer}
        assert (row["data_source"], row["instance_id"]) == ("toy", problem.instance_id)
