"""Grading in processes that can be killed."""

import asyncio
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.errors import ConfigError, DataError, DependencyError
from seele.records import UNGRADED, Grade, GradeReason
from seele.reward import grader as grader_module
from seele.reward import worker
from seele.reward.grader import GraderPool
from seele.reward.process import WorkerProcess

CORRECT = Grade(True, GradeReason.CORRECT)
WRONG = Grade(False, GradeReason.WRONG)

# sympy works this tower out. The gold is no integer: for those MathRuler asks sympy nothing.
HANGING, GOLD = "9**9**9**9", "x+0.5"


@pytest.fixture(scope="module")
def pool():
    with GraderPool(time_limit_s=1.0, memory_limit_mb=512) as pool:
        yield pool


def worker_pids() -> set[int]:
    """Grading processes that this process started."""
    pids = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            is_ours = int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid()
            if is_ours and b"seele.reward.worker" in (stat.parent / "cmdline").read_bytes():
                pids.add(int(stat.parent.name))
        except OSError:  # it ended meanwhile
            continue
    return pids


def processor_ticks(pid: int) -> int:
    """Hundredths of a second that the process has computed."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


@pytest.mark.parametrize(
    ("text", "gold", "grade"),
    [
        (r"so \boxed{12}", "12", CORRECT),
        (r"so \boxed{1,234}", "1234", CORRECT),
        (r"so \boxed{0.5}", r"\frac{1}{2}", CORRECT),
        (r"so \boxed{(x+1)^2}", "x^2+2x+1", CORRECT),
        (r"\boxed{12} no, \boxed{13}", "12", WRONG),
        (r"so \boxed{13}", "12", WRONG),
        ("so 12", "12", Grade(False, GradeReason.NO_ANSWER)),
        ("", "12", Grade(False, GradeReason.NO_ANSWER)),
        (r"\boxed{ }", "12", Grade(False, GradeReason.NO_ANSWER)),
        (r"so \boxed{12", "12", Grade(False, GradeReason.NO_ANSWER)),
        (r"so \boxed{12}", " ", Grade(False, GradeReason.ERROR)),
        ("\\boxed{" + "7" * 100_000 + "}", "7", Grade(False, GradeReason.TOO_LONG)),
        ("7 " * 100_000 + r"\boxed{7}", "7", CORRECT),
    ],
)
def test_verdicts(pool, text, gold, grade):
    assert pool.grade(text, gold) == grade


def test_what_does_not_end_is_killed_and_the_next_answer_is_graded(pool):
    assert pool.grade(rf"\boxed{{{HANGING}}}", GOLD) == Grade(False, GradeReason.TIMEOUT)
    assert pool.grade(r"\boxed{1/2+x}", GOLD) == CORRECT


def test_what_needs_too_much_memory_is_killed_and_counted(pool):
    # 8 bytes for each of 10^10 references: 80 GB.
    assert pool.grade(r"\boxed{[0]*10**10}", GOLD) == Grade(False, GradeReason.CRASHED)
    assert pool.grade(r"\boxed{0.5+x}", GOLD) == CORRECT


def test_a_process_killed_while_it_grades_costs_that_answer_only():
    others = worker_pids()
    with GraderPool(time_limit_s=60.0) as pool, ThreadPoolExecutor(1) as threads:
        assert pool.grade_answer("0.5+x", GOLD) == CORRECT
        [pid] = worker_pids() - others
        ticks_before = processor_ticks(pid)
        grade = threads.submit(pool.grade_answer, HANGING, GOLD)
        while processor_ticks(pid) < ticks_before + 5:
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        assert grade.result() == Grade(False, GradeReason.CRASHED)


def test_a_process_killed_while_it_idles_costs_nothing():
    others = worker_pids()
    with GraderPool() as pool:
        pool.grade_answer("0.5+x", GOLD)
        [pid] = worker_pids() - others
        os.kill(pid, signal.SIGKILL)
        while ") Z " not in Path(f"/proc/{pid}/stat").read_text():
            time.sleep(0.01)
        assert pool.grade_answer("1/2+x", GOLD) == CORRECT
    assert worker_pids() == others


def test_a_process_that_is_stopped_runs_into_the_clock():
    process = WorkerProcess("mathruler", "1.0", "512")
    others = worker_pids()
    assert json.loads(process.ask(b'{"answer": "3.0", "gold": "3"}', limit_s=60.0)) == {"correct": True}
    [pid] = worker_pids() - others
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        process.ask(b'{"answer": "3.0", "gold": "3"}', limit_s=0.1)
    assert worker_pids() == others
    assert process.stop() is None


def test_a_process_that_cannot_start_says_why_and_later_counts_as_dead():
    process = WorkerProcess("no such grader", "1.0", "512")
    with pytest.raises(DependencyError, match="KeyError: 'no such grader'"):
        process.ask(b"", limit_s=1.0)
    process._has_started = True
    with pytest.raises(EOFError):
        process.ask(b"", limit_s=1.0)


def test_many_threads_share_few_processes_and_each_gets_its_own_verdict(pool):
    def grade(number: int) -> Grade:
        return pool.grade(rf"\boxed{{{number}.0}}", str(number - number % 2))

    with ThreadPoolExecutor(100) as threads:
        grades = list(threads.map(grade, range(1000)))
    assert grades == [WRONG if number % 2 else CORRECT for number in range(1000)]


def test_coroutines_can_grade_through_threads(pool):
    async def grade_all() -> list[Grade]:
        texts = [rf"\boxed{{{number}/2}}" for number in range(20)]
        return await asyncio.gather(*(asyncio.to_thread(pool.grade, text, "3.5") for text in texts))

    assert [number for number, grade in enumerate(asyncio.run(grade_all())) if grade.correct] == [7]


def test_batches_keep_their_order(pool):
    numbers = list(range(50))
    assert pool.grade_many((rf"\boxed{{{n}.0}}", "7") for n in numbers) == [
        CORRECT if n == 7 else WRONG for n in numbers
    ]
    assert pool.grade_answers([(None, "1"), ("1", "1")]) == [Grade(False, GradeReason.NO_ANSWER), CORRECT]


def test_a_verdict_is_remembered_and_a_failure_is_not(monkeypatch):
    replies = iter([b'{"correct": false}', b'{"error": "ValueError"}', b'{"correct": true}'])
    monkeypatch.setattr(WorkerProcess, "ask", lambda self, question, *, limit_s: next(replies))
    monkeypatch.setattr(grader_module, "_MAX_REMEMBERED", 1)
    with GraderPool() as pool:
        assert [pool.grade_answer("a", "b") for _ in range(2)] == [WRONG, WRONG]
        assert pool.grade_answer("c", "d") == Grade(False, GradeReason.ERROR)
        # ("a", "b") makes room for ("c", "d").
        assert [pool.grade_answer("c", "d") for _ in range(2)] == [CORRECT, CORRECT]
        with pytest.raises(StopIteration):
            pool.grade_answer("a", "b")


def test_only_a_verdict_counts_as_graded():
    assert {GradeReason.TIMEOUT, GradeReason.CRASHED, GradeReason.TOO_LONG, GradeReason.ERROR} == UNGRADED


@pytest.mark.parametrize("gold", [3, None, 27.0])
def test_a_gold_that_is_no_text_is_the_callers_mistake(pool, gold):
    with pytest.raises(DataError, match="must be a text"):
        pool.grade(r"\boxed{3}", gold)


@pytest.mark.parametrize(
    "setting",
    [
        {"grader": "guess"},
        {"num_workers": 0},
        {"time_limit_s": -1.0},
        {"memory_limit_mb": 0},
        {"max_answer_chars": 0},
    ],
)
def test_impossible_settings_are_refused(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        GraderPool(**setting)


def test_a_closed_pool_refuses_and_may_be_closed_again():
    pool = GraderPool()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.grade_answer("1", "2")


def test_processes_start_only_when_needed():
    others = worker_pids()
    with GraderPool(num_workers=8) as pool:
        pool.grade(r"\boxed{12}", "12")
        pool.grade("nothing", "12")
        assert worker_pids() == others


def test_importing_the_reward_imports_no_sympy():
    probe = "import sys, seele.reward.grader; print('sympy' in sys.modules or 'mathruler' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# What the process does, without the process.


def served(judge: worker.Judge, *questions: dict) -> list[dict]:
    replies = io.StringIO()
    try:
        worker.serve(map(json.dumps, questions), replies, judge, time_limit_s=60.0)
    finally:  # a limit that goes on would end the tests a minute of work later
        assert signal.getitimer(signal.ITIMER_PROF)[0] == 0.0
    return [json.loads(line) for line in replies.getvalue().splitlines()]


def test_each_question_gets_one_line_and_an_exception_is_a_reply():
    def judge(answer: str, gold: str) -> bool:
        return bool(int(answer) == int(gold))

    questions = [{"answer": answer, "gold": "7"} for answer in ("7", "8", "x")]
    right, wrong, failed = served(judge, *questions)
    assert (right, wrong) == ({"correct": True}, {"correct": False})
    assert failed["error"].startswith("ValueError")


@pytest.mark.parametrize("grader", ["mathruler", "math_verify"])
def test_graders_agree_on_plain_answers(grader):
    pytest.importorskip(grader)
    judge = worker.load_judge(grader)
    assert judge("0.5", r"\frac{1}{2}")
    assert not judge("0.6", r"\frac{1}{2}")


def test_out_of_memory_ends_the_process_even_where_mathruler_swallows_it(monkeypatch):
    class DiedError(BaseException):
        pass

    def die():
        raise DiedError

    def exhaust(*_):
        raise MemoryError

    monkeypatch.setattr(worker, "die_of_memory", die)
    with pytest.raises(DiedError):
        served(exhaust, {"answer": "1", "gold": "2"})
    with pytest.raises(DiedError):
        worker._fatal_without_memory(exhaust)()


@pytest.mark.parametrize(
    "expression",
    ["(x).__class__", "(1);(2)", "('x')-(1)", "(x.y)", "(x)-((1).real)", "import os", "lambda:1", "[1].x"],
)
def test_python_is_not_mathematics(expression):
    assert not worker.is_mathematics(expression)


@pytest.mark.parametrize(
    "expression",
    ["(x+0.5)-(1/2+x)", "(5!)-(120)", "(2.x)-(2*x)", "(sqrt(2)*x**2)-(.5)", "(lambdax)-(1)", "[1,2.5]"],
)
def test_formulas_are_mathematics(expression):
    assert worker.is_mathematics(expression)


@pytest.fixture(scope="module")
def mathruler_as_shipped():
    """A copy of MathRuler's grader of its own, without the guards of the worker."""
    spec = importlib.util.find_spec("mathruler.grader")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_seams_that_the_guards_use_are_there(mathruler_as_shipped):
    assert mathruler_as_shipped.are_equal_under_sympy("x", "x+0")
    names = mathruler_as_shipped.are_equal_under_sympy.__code__.co_names
    assert {"should_allow_eval", "_sympy_parse", "sympy", "simplify"} <= set(names)


@settings(max_examples=200, deadline=None)
@given(text=st.text("0123456789.,/^{}()[]\\ \n frac%$-oxé∞;_'", max_size=20))
def test_equal_texts_need_no_process_because_mathruler_accepts_them(mathruler_as_shipped, text):
    assert mathruler_as_shipped.grade_answer(f" {text} ", text)


CASES = Path(__file__).parents[2].parent / "shared" / "data" / "grader_cases_derived.jsonl"


@pytest.mark.skipif(not CASES.is_file(), reason="the collected grader cases are not beside this checkout")
def test_the_guards_change_no_verdict_on_real_answers(mathruler_as_shipped):
    rows = [json.loads(line) for line in CASES.read_text().splitlines()[::3]]
    guarded = worker.load_judge("mathruler")
    for row in rows:
        assert guarded(row["pred"], row["gold"]) == mathruler_as_shipped.grade_answer(
            row["pred"], row["gold"]
        )
