"""An evaluation end to end with a stub in the model's place: what it draws, writes and refuses."""

import json
from pathlib import Path

import pytest
import yaml

from seele.data.schema import write_problems
from seele.errors import ConfigError, DataError, SeeleError
from seele.records import Completion, Finish, Instance
from seele_eval import run as evaluation
from seele_eval.arguments import parse_arguments
from seele_eval.benchmarks import BENCHMARKS, find_benchmarks, load_problems
from seele_eval.conditions import find_weights, read_run_defaults
from seele_eval.generation import TokenPrompts

REAL_DATA = Path(__file__).parents[2].parent / "shared" / "data"


def instances(count):
    return [
        Instance(
            instance_id=f"chains/{i}",
            data_source="chains",
            question=f"{i}+1",
            steps=("a\n", "b"),
            answer=str(i + 1),
        )
        for i in range(count)
    ]


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "heldout.parquet"
    write_problems(path, instances(4), split="heldout")
    return path


@pytest.fixture
def trained_run(tmp_path, problems):
    folder = tmp_path / "run"
    folder.mkdir()
    settings = {
        "seele": {"prompt": {"template": "plain"}},
        "data": {"max_response_length": 24, "val_files": [str(problems)]},
    }
    (folder / "resolved.yaml").write_text(yaml.safe_dump(settings))
    return folder


class AlwaysFour:
    """Answers 4 to everything and remembers what it was asked."""

    def __init__(self):
        self.requests = []
        self.settings = None

    def tokenize(self, model, requests, *, max_tokens):
        return TokenPrompts(tuple((1,) for _ in requests), 1 + max_tokens)

    def complete(self, model, requests, prompts, settings):
        self.requests, self.settings = list(requests), settings
        return [
            Completion(text="\\boxed{4}", token_ids=(7, 8), log_probs=(), finish=Finish.STOP)
            for _ in requests
        ]


def evaluate(engine, *argv):
    arguments = parse_arguments([str(argument) for argument in argv])
    return evaluation.evaluate(arguments, tokenize=engine.tokenize, complete=engine.complete)


def test_a_problem_file_is_scored_and_every_sample_is_written(model, problems, tmp_path):
    (score,) = evaluate(
        AlwaysFour(), "--model", model, "--problems", f"heldout={problems}", "--out", tmp_path / "out"
    )
    # Answers are 1, 2, 3, 4.
    assert (score.benchmark, score.accuracy, score.problems) == ("heldout", 0.25, 4)
    written = json.loads((tmp_path / "out/scores.json").read_text())
    assert written["scores"][0]["accuracy"] == 0.25
    conditions = written["conditions"]
    assert list(conditions["weights_sha256"]) == ["model.safetensors"]
    assert (conditions["hinted"], conditions["max_tokens"]) == (False, 2048)
    assert "python" in conditions["versions"]
    lines = (tmp_path / "out/predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["correct"] for line in lines] == [False, False, False, True]
    assert (tmp_path / "out/scores.md").read_text().startswith("| benchmark")


def test_greedy_and_sampled_are_scored_side_by_side(model, problems, tmp_path):
    engine = AlwaysFour()
    scores = evaluate(
        engine, "--model", model, "--problems", f"heldout={problems}", "--out", tmp_path / "out",
        "--temperature", 0, 0.6, "--samples", 3,
    )  # fmt: skip
    assert [(score.temperature, score.samples) for score in scores] == [(0.0, 1), (0.6, 3)]
    assert len(engine.requests) == 4 + 4 * 3


def test_seeds_differ_between_samples_and_do_not_depend_on_what_else_is_evaluated(model, problems, tmp_path):
    few, many = AlwaysFour(), AlwaysFour()
    common = ("--model", model, "--out", tmp_path / "out", "--temperature", 1, "--samples", 2)
    evaluate(few, *common, "--problems", f"b={problems}")
    evaluate(many, *common, "--problems", f"a={problems}", f"b={problems}")
    seeds = [request.seed for request in few.requests]
    assert len(set(seeds)) == 8
    assert [request.seed for request in many.requests][8:] == seeds


def test_no_prompt_holds_a_hint(model, problems, tmp_path):
    engine = AlwaysFour()
    evaluate(engine, "--model", model, "--problems", f"heldout={problems}", "--out", tmp_path / "out")
    assert [request.question for request in engine.requests] == ["0+1", "1+1", "2+1", "3+1"]


def test_a_run_folder_gives_template_length_and_validation_files(model, trained_run):
    model.rename(trained_run / "merged")
    engine = AlwaysFour()
    (score,) = evaluate(engine, "--run", trained_run)
    assert (score.benchmark, score.template, engine.settings.max_tokens) == ("heldout", "plain", 24)
    assert (trained_run / "eval/scores.json").is_file()


def test_options_go_before_what_the_run_says(model, trained_run, problems, tmp_path):
    engine = AlwaysFour()
    (score,) = evaluate(
        engine, "--run", trained_run, "--model", model, "--problems", f"mine={problems}",
        "--template", "r1_zero", "--max-tokens", 7, "--limit", 2, "--seed", 3, "--out", tmp_path / "out",
    )  # fmt: skip
    assert (score.benchmark, score.template, score.problems) == ("mine", "r1_zero", 2)
    assert (engine.settings.max_tokens, engine.settings.seed) == (7, 3)


def test_a_validation_file_may_be_a_single_name(trained_run):
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    settings["data"]["val_files"] = "data/harder.parquet"
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    assert read_run_defaults(trained_run).problem_files == {"harder": Path("data/harder.parquet")}


class Untouchable:
    """In the place of a model that must not be loaded."""

    def tokenize(self, *_, **__):
        raise AssertionError("the model must not be touched")

    complete = tokenize


BAD = [
    pytest.param(("--model", "absent", "--problems", "a={problems}"), "no such model folder", id="no model"),
    pytest.param(("--model", "{empty}", "--problems", "a={problems}"), "no config.json", id="no config"),
    pytest.param(
        ("--model", "{model}", "--problems", "a=absent.parquet"), "no such file", id="no problem file"
    ),
    pytest.param(("--model", "{model}", "--problems", "a={junk}"), "junk.parquet", id="no parquet"),
    pytest.param(("--model", "{model}", "--problems", "a={hollow}"), "has no rows", id="no rows"),
    pytest.param(
        ("--model", "{model}", "--benchmarks", "gsm9k", "--data-dir", "."), "unknown ['gsm9k']", id="unknown"
    ),
    pytest.param(("--model", "{model}", "--benchmarks", "gsm8k"), "needs --data-dir", id="no data folder"),
    pytest.param(
        ("--model", "{model}", "--benchmarks", "math500", "--data-dir", "{empty}"), "math500", id="no data"
    ),
    pytest.param(("--model", "{model}"), "nothing to evaluate", id="nothing"),
    pytest.param(("--problems", "a={problems}"), "name --model and --out", id="no model named"),
    pytest.param(
        ("--model", "{model}", "--problems", "a={problems}", "a={problems}"), "different names", id="twice"
    ),
    pytest.param(("--run", "{empty}", "--model", "{model}"), "resolved.yaml", id="no run"),
]


@pytest.mark.parametrize(("argv", "message"), BAD)
def test_bad_input_is_refused_before_the_model_is_loaded_and_nothing_is_written(
    argv, message, model, problems, tmp_path
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.parquet").write_text("no parquet")
    write_problems(tmp_path / "hollow.parquet", [], split="x")
    places = {name: tmp_path / name for name in ("empty", "model")}
    places |= {"problems": problems, "junk": tmp_path / "junk.parquet", "hollow": tmp_path / "hollow.parquet"}
    out = tmp_path / "out"
    filled = [argument.format(**places) for argument in argv]
    with pytest.raises(SeeleError) as error_info:
        evaluate(Untouchable(), *filled, "--out", out)
    assert message in str(error_info.value)
    assert not out.exists()


def test_an_output_that_is_a_file_is_refused(model, problems):
    with pytest.raises(ConfigError, match="is a file"):
        evaluate(Untouchable(), "--model", model, "--problems", f"a={problems}", "--out", problems)


def test_the_command_ends_with_status_2_and_one_line(tmp_path, capsys):
    assert evaluation.main(["--model", "absent", "--problems", "a=b", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("DataError: absent: no such model folder")


def test_a_failing_model_leaves_nothing_behind(model, problems, tmp_path):
    with pytest.raises(AssertionError, match="must not be touched"):
        evaluate(Untouchable(), "--model", model, "--problems", f"a={problems}", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_without_weights_is_refused(model):
    (model / "model.safetensors").unlink()
    with pytest.raises(DataError, match="holds no weights"):
        find_weights(model)


@pytest.mark.parametrize("missing", ["seele", "data"])
def test_a_run_without_a_needed_key_is_refused_with_its_name(trained_run, missing):
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    del settings[missing]
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError, match=f"key '{missing}"):
        read_run_defaults(trained_run)


def test_validation_files_of_one_stem_are_refused(trained_run):
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    settings["data"]["val_files"] = ["a/test.parquet", "b/test.parquet"]
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError, match="same stem"):
        read_run_defaults(trained_run)


@pytest.mark.parametrize(
    "argv",
    [
        ["--problems", "no-equals-sign"],
        ["--temperature", "-1"],
        ["--temperature", "nan"],
        ["--samples", "0"],
        ["--max-tokens", "many"],
    ],
)
def test_arguments_that_do_not_parse_end_with_status_2(argv, capsys):
    with pytest.raises(SystemExit) as exit_info:
        parse_arguments(argv)
    assert exit_info.value.code == 2


@pytest.mark.parametrize("line", ["{", '{"problem": "1+1?"}', "[]", '{"problem": 3, "answer": "2"}'])
def test_a_damaged_row_of_math500_is_refused_with_its_line(tmp_path, line):
    (tmp_path / "math500").mkdir()
    good = json.dumps({"problem": "1+1?", "answer": "2", "solution": "2"})
    (tmp_path / "math500/test.jsonl").write_text(f"{good}\n{line}\n")
    (benchmark,) = find_benchmarks(["math500"], tmp_path)
    with pytest.raises(DataError, match="line 2"):
        load_problems(benchmark)


@pytest.mark.skipif(not REAL_DATA.is_dir(), reason=f"no real data at {REAL_DATA}")
@pytest.mark.parametrize(("name", "count"), [("gsm8k", 1319), ("math500", 500)])
def test_real_benchmarks_are_read_whole(name, count):
    (benchmark,) = find_benchmarks([name], REAL_DATA)
    problems = load_problems(benchmark)
    assert len(problems) == count
    assert len({problem.instance_id for problem in problems}) == count
    assert all(
        problem.question and isinstance(problem.answer, str) and problem.answer for problem in problems
    )


def test_every_benchmark_is_named_as_it_is_keyed():
    assert [BENCHMARKS[name](Path()).name for name in BENCHMARKS] == list(BENCHMARKS)
