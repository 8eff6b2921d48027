"""Reward functions of a user's own: what they are called with, may return, and cost."""

import asyncio
import json
import os
import reprlib
from pathlib import Path

import pytest

from seele.config.settings import RewardConfig
from seele.errors import ConfigError, PluginError
from seele.records import GradeReason, Instance
from seele.reward.function_grader import FunctionGrader, open_grader
from seele.reward.grader import GraderPool

INSTANCE = Instance(
    instance_id="chains-1",
    data_source="chains",
    question="1+1",
    steps=("a=1\n", "b=2\n"),
    answer="2",
    level=3,
)

FUNCTIONS = """
import asyncio, os, pathlib, threading

print("what a module prints is no verdict", flush=True)

def length(data_source, solution_str, ground_truth, extra_info, scale=10):
    return {"score": min(1, len(solution_str) / scale), "letters": len(solution_str), "said": solution_str,
            "pid": os.getpid(), "others": [1], "nothing": None, "is_short": len(solution_str) < 3}

def told(data_source, solution_str, ground_truth, extra_info):
    told = [data_source, solution_str, ground_truth, sorted(extra_info.items())]
    return {"score": True, "told": repr(told)}

async def waits(data_source, solution_str, ground_truth, extra_info):
    await asyncio.sleep(float(solution_str or 0))
    return 0.5

def passes_on(**arguments):
    return waits(**arguments)

client = asyncio.Queue()  # belongs to the event loop in which it first waits, as an HTTP client does

async def asks(data_source, solution_str, ground_truth, extra_info):
    asyncio.get_running_loop().call_later(0.01, client.put_nowait, 0.5)
    return await client.get()

told_to_end, ended = threading.Event(), threading.Event()

def sleeps(data_source, solution_str, ground_truth, extra_info):
    told_to_end.wait(5)
    ended.set()

all_at_once = threading.Barrier(33)  # asyncio has at most 32 threads

def meets(data_source, solution_str, ground_truth, extra_info):
    all_at_once.wait(5)
    return 1

def spins(data_source, solution_str, ground_truth, extra_info):
    while solution_str == "for ever":
        pass
    return 1

def fills(data_source, solution_str, ground_truth, extra_info):
    return len(bytearray(2**40 if solution_str == "all" else 2**20)) > 0

def exits(data_source, solution_str, ground_truth, extra_info):
    os._exit(3) if solution_str == "exit" else None
    return 1

def needs_files(data_source, solution_str, ground_truth, extra_info):
    import colorsys  # not loaded yet
    pathlib.Path(extra_info["question"]).write_text(solution_str)
    return pathlib.Path(extra_info["question"]).read_text() == solution_str

def returns(data_source, solution_str, ground_truth, extra_info):
    return eval(solution_str)

def other_names(source, text, gold):
    return 1.0

def spins_always(data_source, solution_str, ground_truth, extra_info):
    while True:
        pass

class Judge:
    def __init__(self):
        self.now = self.most = 0

    async def __call__(self, data_source, solution_str, ground_truth, extra_info):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.05)
        self.now -= 1
        return self.most / 100

judge = Judge()
"""


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "own.py").write_text(FUNCTIONS)
    return tmp_path / "own.py"


@pytest.fixture
def own(file):
    """A grader by one of the functions."""
    made = []

    def grader(name: str, **settings) -> FunctionGrader:
        made.append(open_grader(RewardConfig(grader=f"{file}:{name}", **settings)))
        return made[-1]

    yield grader
    for each in made:
        each.close()


ISOLATIONS = pytest.mark.parametrize("isolation", ["process", "none"])


def line_of(name: str) -> int:
    return next(
        number for number, line in enumerate(FUNCTIONS.splitlines(), 1) if line.startswith(f"def {name}")
    )


@ISOLATIONS
def test_a_reward_is_a_number_and_what_counts_as_solved_is_a_setting(own, isolation):
    grader = own("length", isolation=isolation, correct_from=0.5)
    short, longer, full = grader.grade_problems([(text, INSTANCE) for text in ("abc", "abcde", "a" * 20)])
    assert [grade.reward for grade in (short, longer, full)] == [0.3, 0.5, 1.0]
    assert [grade.correct for grade in (short, longer, full)] == [False, True, True]
    assert [grade.reason for grade in (short, longer)] == [GradeReason.WRONG, GradeReason.CORRECT]


@ISOLATIONS
def test_numbers_and_texts_of_a_dict_are_kept_and_nothing_else(own, isolation):
    grade = own("length", isolation=isolation).grade_problem("ab", INSTANCE)
    pid = grade.extra["pid"]
    assert grade.extra == {"letters": 2.0, "said": "ab", "is_short": 1.0, "pid": pid}
    assert (pid == os.getpid()) is (isolation == "none")


@ISOLATIONS
def test_the_function_is_told_what_verl_tells_it_and_the_hint(own, isolation):
    grader = own("told", isolation=isolation)
    grade = asyncio.run(grader.grade_rollout("b=2", INSTANCE, hint_steps=1))
    extra_info = {
        "instance_id": "chains-1",
        "data_source": "chains",
        "question": "1+1",
        "level": 3,
        "steps": ["a=1\n", "b=2\n"],
        "hint": "a=1\n",
        "hint_ratio": 0.5,
    }
    assert grade.extra["told"] == repr(["chains", "b=2", "2", sorted(extra_info.items())])


@ISOLATIONS
def test_further_arguments_are_passed_on(own, isolation):
    grader = own("length", isolation=isolation, kwargs={"scale": 4})
    assert grader.grade_problem("ab", INSTANCE).reward == 0.5


@ISOLATIONS
@pytest.mark.parametrize("name", ["waits", "passes_on", "asks"])
def test_a_coroutine_is_awaited_call_after_call_in_one_event_loop(own, isolation, name):
    grader = own(name, isolation=isolation, num_workers=1)
    assert [grader.grade_problem("", INSTANCE).reward for _ in range(2)] == [0.5, 0.5]


def test_in_this_process_as_many_calls_run_at_the_same_time_as_allowed(own):
    def most(num_workers: int) -> float:
        async def grade() -> list[float]:
            grader = own("judge", isolation="none", num_workers=num_workers)
            grader._function.most = 0
            return [
                each.reward
                for each in await asyncio.gather(*(grader.grade_rollout("", INSTANCE) for _ in range(12)))
            ]

        return max(asyncio.run(grade())) * 100

    assert (most(1), most(5)) == (1.0, 5.0)
    grades = own("meets", isolation="none", num_workers=33).grade_problems([("", INSTANCE)] * 33)
    assert all(grade.correct for grade in grades)


@pytest.mark.parametrize("name", ["waits", "sleeps"])
def test_in_this_process_the_limit_is_the_clocks(own, name):
    grader = own(name, isolation="none", time_limit_s=0.1)
    for grade in (grader.grade_problem("50", INSTANCE), asyncio.run(grader.grade_rollout("50", INSTANCE))):
        assert (grade.correct, grade.reward, grade.reason) == (False, 0.0, GradeReason.TIMEOUT)
    # Nothing waits for a thread that cannot be stopped.
    thread = grader._function.__globals__
    assert not thread["ended"].is_set()
    thread["told_to_end"].set()


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("spins", "for ever", GradeReason.TIMEOUT),
        ("fills", "all", GradeReason.CRASHED),
        ("exits", "exit", GradeReason.CRASHED),
    ],
)
def test_what_overruns_in_its_process_is_wrong_and_costs_itself_only(own, name, text, reason):
    grader = own(name, time_limit_s=0.3, memory_limit_mb=64)
    before, at_fault, behind = grader.grade_problems([(each, INSTANCE) for each in ("", text, "")])
    assert before.correct and behind.correct
    assert (at_fault.correct, at_fault.reward, at_fault.reason) == (False, 0.0, reason)


def test_its_process_keeps_files_imports_and_environment(own, tmp_path, monkeypatch):
    instance = Instance(
        instance_id="1", data_source="", question=str(tmp_path / "written"), steps=(), answer=""
    )
    assert own("needs_files").grade_problem("abc", instance).correct
    monkeypatch.setenv("OF_THE_RUN", "0.25")
    assert own("returns").grade_problem("float(os.environ['OF_THE_RUN'])", INSTANCE).reward == 0.25


NONSENSE = [
    ("None", "returned the score None, which is not a number"),
    ("'1'", "returned the score '1', which is not a number"),
    ("float('nan')", "returned the score nan"),
    ("1.5", "returned the score 1.5"),
    ("-1", "returned the score -1"),
    ("10**400", "returned the score inf"),
    ("{'acc': 1}", "returned a dict without 'score' but with ['acc']"),
    ("{'score': [1]}", "returned the score [1]"),
    ("{'score': 1, 'mean': 0.5}", "returned a value named 'mean', which a run logs itself"),
    ("{'score': 1, 'loss': float('inf')}", "returned inf as 'loss'"),
    ("1 / 0", "raised ZeroDivisionError: division by zero (<string>:1)"),
]


@ISOLATIONS
def test_nonsense_is_the_functions_fault_with_file_line_and_problem(own, file, isolation):
    grader = own("returns", isolation=isolation)
    for returned, message in NONSENSE:
        with pytest.raises(PluginError) as error:
            grader.grade_problem(returned, INSTANCE)
        assert message in str(error.value)
        assert f"{file}:{line_of('returns')}" in str(error.value)
        said = f"on problem 'chains-1', response {reprlib.repr(returned)}; allowed is a number from 0 to 1"
        assert said in str(error.value)


def test_numbers_of_numpy_are_numbers(own):
    grader = own("returns", isolation="none")
    for returned in ("float32(0.5)", "array(0.5)", "array([0.5])"):
        assert grader.grade_problem(f"__import__('numpy').{returned}", INSTANCE).reward == 0.5
    assert grader.grade_problem("__import__('numpy').bool_(True)", INSTANCE).correct


def test_parameters_of_other_names_are_refused_at_once(own, file):
    with pytest.raises(ConfigError, match="cannot be called with the keywords") as error:
        own("other_names")
    assert f"{file}:{line_of('other_names')}" in str(error.value)
    with pytest.raises(ConfigError, match=r"'scale'.*unexpected keyword argument 'scale'"):
        own("told", kwargs={"scale": 1})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("guess", "seele.reward.grader: unknown name 'guess'; allowed are ['math_verify', 'mathruler'"),
        ("{file}:guess", "has no 'guess'"),
        ("{folder}/no.py:guess", "no file"),
        ("seele.reward.no_module:guess", "cannot import"),
        ("{file}:Judge", "is not a function"),
    ],
)
def test_what_is_no_function_is_refused_with_what_is_allowed(file, spec, message):
    with pytest.raises(ConfigError) as error:
        open_grader(RewardConfig(grader=spec.format(file=file, folder=file.parent)))
    assert message in str(error.value)


def test_a_built_in_grader_goes_by_its_name():
    with open_grader(RewardConfig(grader="strict+")) as grader:
        assert isinstance(grader, GraderPool)


def test_a_function_is_tried_before_a_run_depends_on_it(own):
    own("length").try_on(INSTANCE)
    with pytest.raises(PluginError, match="raised SyntaxError"):
        own("returns").try_on(INSTANCE)  # of nothing
    with pytest.raises(ConfigError, match=r"ended with 'timeout'; allowed are 0.2 s of processor time"):
        own("spins_always", time_limit_s=0.2).try_on(INSTANCE)
    own("returns", isolation="none").try_on(INSTANCE)  # may need what is not there yet


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"isolation": "thread"}, "isolation must be one of"),
        ({"correct_from": 0.0}, "correct_from must lie in"),
        ({"correct_from": 1.1}, "correct_from must lie in"),
        ({"kwargs": {1: 2}}, "kwargs: keys must be names"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RewardConfig(**settings)


def test_a_row_of_a_file_is_graded_as_in_training(tmp_path):
    from typer.testing import CliRunner

    from seele.cli.main import app

    function, cases, out = (tmp_path / name for name in ("own.py", "cases.jsonl", "graded.jsonl"))
    arguments = "data_source, solution_str, ground_truth, extra_info"
    function.write_text(
        f"def count({arguments}, per=4):\n"
        "    share = len(extra_info['steps']) / per + extra_info['hint_ratio']\n"
        "    return share + extra_info['level'] / 8\n"
    )
    command = ["grade", str(cases), "--out", str(out), "--grader", f"{function}:count", "--workers", "1"]
    row = {"gold": "4", "pred": "5"}
    rows = [row | {"steps": ["a", "b"]}, row, row | {"level": 2}]
    cases.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["reward"] for line in out.read_text().splitlines()] == [0.5, 0.0, 0.25]
    cases.write_text(json.dumps(row | {"steps": ["a", "b"], "hint_steps": 1}))
    settings = [f"--set={each}" for each in ("kwargs.per=8", "correct_from=0.75", "isolation=none")]
    assert CliRunner().invoke(app, [*command, *settings]).exit_code == 0
    graded = json.loads(out.read_text())
    assert (graded["reward"], graded["correct"]) == (0.75, True)
    for bad, complaint in (
        ({"steps": "a"}, "line 1, key 'steps': expected a list of texts, got 'a'"),
        ({"level": "hard"}, "line 1, key 'level': expected a whole number, got 'hard'"),
        (
            {"steps": ["a"], "hint_steps": 2},
            "line 1, key 'hint_steps': expected a number of steps from 0 to 1",
        ),
    ):
        cases.write_text(json.dumps(row | bad))
        assert complaint in str(CliRunner().invoke(app, command).exception)


def test_a_file_of_answers_is_graded_by_it(file, tmp_path):
    from typer.testing import CliRunner

    from seele.cli.main import app

    cases, out = tmp_path / "cases.jsonl", tmp_path / "graded.jsonl"
    cases.write_text('{"gold": "2", "pred": "abcdefghij", "id": 7}\n{"gold": "2", "pred": "ab"}\n')
    command = ["grade", str(cases), "--out", str(out), "--grader", f"{file}:length", "--workers", "1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    # The module prints as it is imported.
    assert result.output.endswith(f"\n{out}: 1 of 2 correct (1 wrong); mean reward 0.6\n")
    full, short = map(json.loads, out.read_text().splitlines())
    assert (full["correct"], full["reward"], full["id"]) == (True, 1.0, 7)
    assert (short["correct"], short["reward"], short["reward_extra"]["letters"]) == (False, 0.2, 2.0)
    for option, value, complaint in (
        ("--workers", "0", "seele.reward: num_workers must be finite and positive, got 0"),
        ("--time-limit-s", "nan", "seele.reward: time_limit_s must be finite and positive, got nan"),
        ("--max-chars", "5", "--max-chars 5: a reward function of your own gets texts of any length"),
        ("--set", "format_score=0.1", "--set format_score: expected kwargs.NAME, correct_from, isolation or"),
        ("--set", "kwargs.most=1", "seele.reward.grader: "),
    ):
        error = CliRunner().invoke(app, [*command, option, value]).exception
        assert isinstance(error, ConfigError) and str(error).startswith(complaint)
