"""Grading in processes: killed where needed, locked in, and what reaches ``eval``."""

import asyncio
import contextlib
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
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy.parsing import sympy_parser

from seele.config.settings import RewardConfig
from seele.errors import ConfigError, DataError, DependencyError
from seele.records import UNGRADED, Grade, GradeReason
from seele.reward import grader as grader_module
from seele.reward import graders, sandbox, worker
from seele.reward import process as process_module
from seele.reward.expression_filter import MAX_DEPTH, NotMathematicsError, check_code, is_too_deep
from seele.reward.grader import GraderPool
from seele.reward.process import WorkerProcess

# --- Grading in processes that can be killed


CORRECT = Grade(True, GradeReason.CORRECT)
WRONG = Grade(False, GradeReason.WRONG)

# sympy takes minutes and gigabytes to multiply this out. The gold is no integer: for those MathRuler asks
# sympy nothing.
HANGING, GOLD = "(1+sqrt(2)+sqrt(3)+sqrt(5)+sqrt(7))**99", "x+0.5"


@pytest.fixture(scope="module")
def pool():
    with GraderPool(RewardConfig(time_limit_s=1.0, memory_limit_mb=512)) as pool:
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


def child_of(pid: int) -> int:
    """The process that grades; the one that we started only forks it."""
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        time.sleep(0.01)
    return int(children[0])


def victim(*, but: set[int]) -> int | None:
    """The child of a grading process, neither of which is among those of ``but``."""
    for pid in worker_pids() - but:
        with contextlib.suppress(OSError):  # it ended meanwhile
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                if int(child) not in but:
                    return int(child)
    return None


def processor_ticks(pid: int) -> int:
    """Hundredths of a second that the process has computed."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def wait_until_it_computes(pid: int) -> None:
    ticks_before = processor_ticks(pid)
    while processor_ticks(pid) < ticks_before + 5:
        time.sleep(0.01)


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


@pytest.mark.parametrize(
    ("text", "gold", "grade"),
    [
        ("x" * 10_000 + r"\boxed{1,000}", "1000", CORRECT),
        ("(" * 60 + r"\boxed{1,000}", "1000", CORRECT),
        ("x" * 10_000 + r"\boxed{5}", "4", WRONG),
        ("4" * 10_000, "4", Grade(False, GradeReason.TOO_LONG)),
    ],
)
def test_limits_are_of_the_answer_and_not_of_the_text_around_its_box(pool, text, gold, grade):
    assert pool.grade_answer(text, gold) == grade


def test_what_does_not_end_is_killed_and_the_next_answer_is_graded(pool):
    assert pool.grade(rf"\boxed{{{HANGING}}}", GOLD) == Grade(False, GradeReason.TIMEOUT)
    assert pool.grade(r"\boxed{1/2+x}", GOLD) == CORRECT


def test_what_needs_too_much_memory_is_killed_and_counted():
    with GraderPool(RewardConfig(time_limit_s=60.0, memory_limit_mb=120)) as small:
        assert small.grade(rf"\boxed{{{HANGING}}}", GOLD) == Grade(False, GradeReason.CRASHED)
        assert small.grade(r"\boxed{0.5+x}", GOLD) == CORRECT


@pytest.mark.parametrize("whole", [True, False], ids=["the process", "its child"])
def test_a_process_killed_twice_while_it_grades_costs_that_answer_only(whole):
    others, killed = worker_pids(), set()
    with GraderPool(RewardConfig(time_limit_s=60.0)) as pool, ThreadPoolExecutor(1) as threads:
        assert pool.grade_answer("0.5+x", GOLD) == CORRECT
        answers = ["1/2+x", HANGING, "x+2/4", "x+1"]
        grades = threads.submit(pool.grade_answers, [(answer, GOLD) for answer in answers])
        for _ in range(2):  # after the first time, the answer is graded again
            while (found := victim(but=others | killed)) is None:
                time.sleep(0.01)
            wait_until_it_computes(found)
            killed.add(os.getpgid(found) if whole else found)
            os.kill(os.getpgid(found) if whole else found, signal.SIGKILL)
        assert grades.result() == [CORRECT, Grade(False, GradeReason.CRASHED), CORRECT, WRONG]
    assert worker_pids() == others


@pytest.mark.parametrize("whole", [True, False], ids=["the process", "its child"])
def test_a_process_killed_while_it_idles_costs_nothing(whole):
    others = worker_pids()
    with GraderPool() as pool:
        pool.grade_answer("0.5+x", GOLD)
        [pid] = worker_pids() - others
        killed = pid if whole else child_of(pid)
        os.kill(killed, signal.SIGKILL)
        while Path(f"/proc/{killed}").exists() and ") Z " not in Path(f"/proc/{killed}/stat").read_text():
            time.sleep(0.01)
        time.sleep(0.1)
        assert pool.grade_answer("1/2+x", GOLD) == CORRECT
    assert worker_pids() == others


def test_a_process_that_is_stopped_runs_into_the_clock():
    process = WorkerProcess("mathruler", "1.0", "512")
    others = worker_pids()
    assert process.ask([("3.0", "3")], limit_s=60.0) == [GradeReason.CORRECT]
    [pid] = worker_pids() - others
    os.killpg(pid, signal.SIGSTOP)
    # More than a pipe holds: neither the writing nor the waiting may last. Another process does it all.
    fates = process.ask([("3." + "0" * 990, "3"), *[("1" * 1000, "3")] * 99], limit_s=8.0)
    assert fates == [GradeReason.CORRECT] + [GradeReason.WRONG] * 99
    process.stop()
    assert worker_pids() == others


KILLED, LATE, SLOW, CRASH = ({"ended": status} for status in (-9, -signal.SIGALRM, -signal.SIGPROF, 71))
RIGHT = {"correct": True}


@pytest.mark.parametrize(
    ("exchanges", "fates"),
    [
        ([[RIGHT, KILLED], [RIGHT, RIGHT]], ["correct"] * 3),
        ([[RIGHT, LATE], [RIGHT, KILLED], [RIGHT]], ["correct"] * 3),
        ([[KILLED], [LATE], [KILLED], [RIGHT, RIGHT]], ["timeout", "correct", "correct"]),
        ([[SLOW], [CRASH], [RIGHT]], ["timeout", "crashed", "correct"]),
    ],
)
def test_an_answer_whose_process_ends_from_outside_is_graded_once_more(monkeypatch, exchanges, fates):
    said = iter(exchanges)
    monkeypatch.setattr(WorkerProcess, "_exchange", lambda *_: next(said))
    assert WorkerProcess("mathruler").ask([("1", "1")] * 3, limit_s=1.0) == fates
    assert next(said, None) is None


def test_a_process_that_cannot_start_says_why_and_later_counts_as_dead():
    process = WorkerProcess("no such grader", "1.0", "512")
    with pytest.raises(DependencyError, match="KeyError: 'no such grader'"):
        process.ask([("1", "2")], limit_s=1.0)
    process._has_started = True
    assert process.ask([("1", "2")], limit_s=1.0) == [GradeReason.CRASHED]


@pytest.mark.parametrize("prefix", [("no-such-command",), ("false",)])
def test_where_the_network_cannot_be_left_the_process_starts_all_the_same(monkeypatch, prefix):
    monkeypatch.setattr(process_module, "NO_NETWORK", prefix)
    process = WorkerProcess("mathruler", "1.0", "512")
    assert process.ask([("3.0", "3")], limit_s=60.0) == [GradeReason.CORRECT]
    process.stop()


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


def test_what_overruns_in_the_middle_of_a_batch_costs_itself_only(pool):
    answers = [HANGING if number % 20 == 7 else f"{number}/2+x" for number in range(60)]
    reasons = [grade.reason for grade in pool.grade_answers((answer, GOLD) for answer in answers)]
    assert [number for number, reason in enumerate(reasons) if reason is GradeReason.TIMEOUT] == [7, 27, 47]
    assert [number for number, reason in enumerate(reasons) if reason is GradeReason.CORRECT] == [1]
    assert reasons.count(GradeReason.WRONG) == 56


class Recorder:
    """In place of a process: says what it was told to say, and keeps what it was asked."""

    def __init__(self, reason: GradeReason) -> None:
        self.reason = reason
        self.asked: list[tuple[str, str]] = []

    def ask(self, pairs, *, limit_s):
        self.asked += pairs
        return [self.reason] * len(pairs)

    def stop(self):
        pass


def recorded(monkeypatch, reason: GradeReason) -> Recorder:
    recorder = Recorder(reason)
    monkeypatch.setattr(grader_module, "WorkerProcess", lambda *arguments: recorder)
    return recorder


def test_equal_pairs_are_graded_once_and_verdicts_are_remembered(monkeypatch):
    recorder = recorded(monkeypatch, GradeReason.WRONG)
    monkeypatch.setattr(grader_module, "_MAX_REMEMBERED", 2)
    with GraderPool() as pool:
        assert pool.grade_answers([("a", "b"), ("c", "b"), ("a", "b")] * 10) == [WRONG] * 30
        assert recorder.asked == [("a", "b"), ("c", "b")]
        pool.grade_answer("a", "b")  # remembered, and the last one asked for
        pool.grade_answer("d", "b")  # makes room for itself: ("c", "b") goes
        assert recorder.asked[2:] == [("d", "b")]
        pool.grade_answer("a", "b")
        assert recorder.asked[3:] == []
        pool.grade_answer("c", "b")
        assert recorder.asked[3:] == [("c", "b")]


@pytest.mark.parametrize("reason", [GradeReason.ERROR, GradeReason.TIMEOUT, GradeReason.CRASHED])
def test_a_failure_is_not_remembered(monkeypatch, reason):
    recorder = recorded(monkeypatch, reason)
    with GraderPool() as pool:
        assert [pool.grade_answer("a", "b") for _ in range(2)] == [Grade(False, reason)] * 2
    assert recorder.asked == [("a", "b")] * 2


@pytest.mark.parametrize(
    ("answer", "gold", "reason"),
    [
        ("7" * 1001, "7", GradeReason.TOO_LONG),
        ("7", "7" * 1001, GradeReason.TOO_LONG),
        ("(" * 51 + "7", "7", GradeReason.TOO_DEEP),
        ("7", "{" * 51 + "7", GradeReason.TOO_DEEP),
        ("x \\boxed{7", "7", GradeReason.NO_ANSWER),
        (None, "7", GradeReason.NO_ANSWER),
        (7, "7", GradeReason.NO_ANSWER),
        (["7"], "7", GradeReason.NO_ANSWER),
        (b"7", "7", GradeReason.NO_ANSWER),
    ],
)
def test_what_is_not_handed_to_a_grader(monkeypatch, answer, gold, reason):
    recorder = recorded(monkeypatch, GradeReason.CORRECT)
    with GraderPool() as pool:
        assert pool.grade_answer(answer, gold) == Grade(False, reason)
    assert recorder.asked == []


def test_only_a_verdict_counts_as_graded():
    wrong = {GradeReason.WRONG, GradeReason.MALFORMED, GradeReason.NO_ANSWER, GradeReason.TRUNCATED}
    assert set(GradeReason) - UNGRADED == {GradeReason.CORRECT, *wrong}


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
    with pytest.raises((ConfigError, ValueError), match=next(iter(setting))):
        GraderPool(RewardConfig(**setting))


def test_a_closed_pool_refuses_and_may_be_closed_again():
    pool = GraderPool()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.grade_answer("1", "2")


def test_processes_start_only_when_needed():
    others = worker_pids()
    with GraderPool(RewardConfig(num_workers=8)) as pool:
        pool.grade(r"\boxed{12}", "12")
        pool.grade("nothing", "12")
        assert worker_pids() == others


def test_importing_the_reward_imports_no_sympy():
    probe = "import sys, seele.reward.grader; print('sympy' in sys.modules or 'mathruler' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# What the process does, without the process.


def served(judge: graders.Judge, *messages: dict, max_answers: int = 10) -> tuple[bool, list[dict]]:
    replies = io.StringIO()
    try:
        goes_on = worker.serve(
            map(json.dumps, messages), replies, judge, time_limit_s=60.0, max_answers=max_answers
        )
    finally:  # a limit that goes on would end the tests a minute of work later
        assert signal.getitimer(signal.ITIMER_PROF)[0] == 0.0
    return goes_on, [json.loads(line) for line in replies.getvalue().splitlines()]


def same_integer(answer: str, gold: str) -> bool:
    return int(answer) == int(gold)


def test_each_pair_gets_one_line_and_an_exception_is_a_reply():
    messages = {"batch": 1, "pairs": [["7", "7"], ["8", "7"]]}, {"batch": 2, "pairs": [["x", "7"]]}
    goes_on, (right, wrong, failed) = served(same_integer, *messages)
    assert not goes_on
    assert (right, wrong) == ({"batch": 1, "correct": True}, {"batch": 1, "correct": False})
    assert failed["batch"] == 2 and failed["error"].startswith("ValueError")


def test_a_child_makes_room_for_another_between_two_messages():
    messages = [{"batch": batch, "pairs": [["7", "7"]] * 3} for batch in range(3)]
    goes_on, replies = served(same_integer, *messages, max_answers=4)
    assert goes_on
    assert [reply["batch"] for reply in replies] == [0, 0, 0, 1, 1, 1]


def test_a_child_that_ends_is_replaced_until_one_ends_well(tmp_path):
    fates = iter(["os._exit(3)", "1 / 0", "os.kill(os.getpid(), 9)", "os._exit(75)", "os._exit(0)"])
    remaining = tmp_path / "fates"
    remaining.write_text("\n".join(fates))

    def work() -> int:
        fate, _, rest = remaining.read_text().partition("\n")
        remaining.write_text(rest)
        exec(fate, {"os": os})
        return 0

    replies = io.StringIO()
    worker.keep_alive(work, replies)
    # 75, temporary failure, is a child that made room.
    assert [json.loads(line)["ended"] for line in replies.getvalue().splitlines()] == [3, os.EX_SOFTWARE, -9]
    assert remaining.read_text() == ""


def test_out_of_memory_ends_the_process_even_where_mathruler_swallows_it(monkeypatch):
    class DiedError(BaseException):
        pass

    def die():
        raise DiedError

    def exhaust(*_):
        raise MemoryError

    for module in (worker, graders):
        monkeypatch.setattr(module, "die_of_memory", die)
    with pytest.raises(DiedError):
        served(exhaust, {"batch": 1, "pairs": [["1", "2"]]})
    with pytest.raises(DiedError):
        graders._fatal_without_memory(exhaust)()


def test_the_seams_in_the_libraries_are_there():
    mathruler = pytest.importorskip("mathruler.grader")
    assert {"_sympy_parse", "sympy", "simplify"} <= set(mathruler.are_equal_under_sympy.__code__.co_names)
    assert {"sympy_parser", "parse_expr"} <= set(mathruler._sympy_parse.__code__.co_names)
    parser = pytest.importorskip("sympy.parsing.sympy_parser")
    assert {"stringify_expr", "eval_expr"} <= set(parser.parse_expr.__code__.co_names)
    for name in ("latex2text", "latexwalker"):
        assert callable(pytest.importorskip(f"pylatexenc.{name}").get_default_latex_context_db)


@settings(max_examples=200)
@given(text=st.text("0123456789.,/^{}()[]\\ \n frac%$-oxé∞;_'", min_size=1, max_size=20))
def test_equal_texts_need_no_process_because_mathruler_accepts_them(text):
    assert pytest.importorskip("mathruler.grader").grade_answer(f" {text} ", text)


# --- What a grading process can do no more. Each attempt is made in a process of its own, forked from one


PROBE = """
import ctypes, os, resource, shutil, socket, subprocess, sys
from seele.reward import sandbox

for attempt in sys.argv[1:]:
    if not (child := os.fork()):
        sandbox.enter_nowhere()
        sandbox.give_up(1024)
        exec(attempt)
        os._exit(42)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
SURVIVED = 42


def outcomes(attempts: list[str], folder: Path, *, before: str = "") -> dict[str, int]:
    """Exit status of the processes that attempt these once they are in the sandbox."""
    probe = [sys.executable, "-c", before + PROBE, *attempts]
    ended = subprocess.run(probe, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return dict(zip(attempts, map(int, ended.stdout.split()), strict=True))


def test_what_grading_needs_is_left(tmp_path):
    attempts = ["pass", "import colorsys", "open('/proc/self/status').read()", "sum(range(10**6))"]
    attempts += ["eval('1+1')"]
    assert outcomes(attempts, tmp_path) == dict.fromkeys(attempts, SURVIVED)


def test_everything_else_ends_the_process_and_leaves_no_trace(tmp_path):
    attempts = [
        "open('canary', 'w')",
        "open('{folder}/canary', 'w')",
        "os.open('{folder}/canary', os.O_CREAT)",
        "os.mkdir('{folder}/canary')",
        "os.symlink('/', '{folder}/canary')",
        "os.rename('{folder}/kept', '{folder}/canary')",
        "os.remove('{folder}/kept')",
        "os.chmod('{folder}/kept', 0)",
        "os.truncate('{folder}/kept', 0)",
        "os.system('touch {folder}/canary')",
        "subprocess.run(['touch', '{folder}/canary'])",
        "os.execv('/bin/sh', ['sh', '-c', 'touch {folder}/canary'])",
        "os.fork()",
        "os.kill(os.getppid(), 0)",
        "socket.socket()",
        "socket.getaddrinfo('localhost', 80)",
        "ctypes.CDLL(None)",
        "ctypes.string_at(0)",
        "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    ]
    attempts = [attempt.format(folder=tmp_path) for attempt in attempts]
    (tmp_path / "kept").write_text("kept")
    assert outcomes(attempts, tmp_path) == dict.fromkeys(attempts, os.EX_NOPERM)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"kept": "kept"}


def test_memory_open_files_folder_and_environment_are_taken_away(tmp_path):
    errors = {
        "bytearray(2**31)": "MemoryError",
        "files = [open('/proc/self/status') for _ in range(99)]": "OSError",
        "os.mkfifo('canary')": "AttributeError",
        "os.getcwd()": "FileNotFoundError",
        "os.environ['PATH']": "KeyError",
    }
    attempts = [f"try: {attempt}\nexcept {error}: os._exit(7)" for attempt, error in errors.items()]
    assert outcomes(attempts, tmp_path) == dict.fromkeys(attempts, 7)


def test_limits_that_are_tighter_already_are_kept(tmp_path):
    attempt = "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (9, 9)"
    tighter = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))"
    assert outcomes([attempt], tmp_path, before=tighter) == {attempt: SURVIVED}


def test_there_is_no_network_where_the_kernel_lets_users_make_namespaces():
    tried = subprocess.run([*sandbox.NO_NETWORK, "cat", "/proc/net/dev"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this machine lets nobody leave the network: {tried.stderr.strip()}")
    assert [line.split(":")[0].strip() for line in tried.stdout.splitlines()[2:]] in ([], ["lo"])
    assert os.path.exists("/proc/net/dev")


# --- What of a text reaches ``eval``


TRANSFORMATIONS = (
    *sympy_parser.standard_transformations,
    sympy_parser.implicit_multiplication_application,
)


def as_python(text: str) -> str:
    """The Python that sympy makes of a text, as MathRuler asks for it."""
    names: dict = {}
    exec("from sympy import *", names)
    unguarded = getattr(sympy_parser.stringify_expr, "__wrapped__", sympy_parser.stringify_expr)
    return unguarded(text.replace("^", "**"), {}, names, TRANSFORMATIONS)


@pytest.mark.parametrize(
    "text",
    [
        "(x+0.5)-(1/2+x)",
        "(5!)-(120)",
        "(2.x)-(2*x)",
        "(sqrt(2)x^2)-(.5)",
        "(x2)-(2x)",
        "-3 + +pi",
        "(f(x)+f(1))",
        "x_1+x_2",
        "2^9-10^6",
        "52!",
        "3.54e-07",
        "1_000",
        "0x1F",
        "3j",
        "ln(2)",
        "\u03b1+\u03b2",
        "9" * 900,
    ],
)
def test_mathematics_passes(text):
    check_code(as_python(text))


@pytest.mark.parametrize(
    "code",
    [
        "x",
        "5",
        "'5'",
        "b'5'",
        "f'{5}'",
        "Integer('5')",
        "Integer(5, 6)",
        "Integer(n=5)",
        "Integer(5.5)",
        "Float(5)",
        "Number('five')",
        "Symbol(x)",
        "Symbol('x y')",
        "Symbol('__import__')",
        "Symbol('x', positive=Integer(1))",
        "Function('f')",
        "Function('f')(*Integer(1))",
        "Function('f.g')(Integer(1))",
        "Symbol('x').is_real",
        "Symbol('x')[Integer(1)]",
        "Symbol('x')(Integer(1))",
        "(Integer(1), Integer(2))",
        "[Integer(1)]*Integer(2)",
        "{Integer(1)}",
        "Integer(1) if Integer(1) else Integer(2)",
        "Integer(1) < Integer(2)",
        "Integer(1) or Integer(2)",
        "Integer(1) << Integer(2)",
        "Integer(1) % Integer(2)",
        "Integer(1) // Integer(2)",
        "Integer(1) | Integer(2)",
        "~Integer(1)",
        "not Integer(1)",
        "lambda: Integer(1)",
        "(y := Integer(1))",
        "[Symbol('x') for x in Integer(1)]",
        "open(Integer(1))",
        "id(Integer(1))",
        "sympify('1')",
        "sqrt('1')",
        "sqrt(Integer(1), Integer(2))",
        "sqrt",
        "pi.evalf()",
        "__import__('os').system('true')",
        "().__class__",
        "Integer(1).__class__",
    ],
)
def test_everything_else_is_not_mathematics(code):
    with pytest.raises(NotMathematicsError):
        check_code(code)


@pytest.mark.parametrize("code", ["Integer(1", "import os", "x = 1", "Integer(1); Integer(2)", "", "\0"])
def test_statements_and_fragments_are_no_expressions(code):
    with pytest.raises((SyntaxError, ValueError)):
        check_code(code)


@pytest.mark.parametrize(
    "text",
    [
        "9^9^9",
        "9^9^9^9",
        "((9^999)^999)^999",
        "9^(9*9*9*9*9*9)",
        "2^(99!)",
        "99999!",
        "(9!)!",
        "1e999999",
        "1e-999999",
        "(x+1)^100000",
        "10^10^10*x",
    ],
)
def test_numbers_with_too_many_digits_are_not_worked_out(text):
    with pytest.raises(NotMathematicsError, match="too large"):
        check_code(as_python(text))


@pytest.mark.parametrize(("text", "value"), [("2^10", 1024), ("20!", sympy.factorial(20)), ("2^2^3", 256)])
def test_numbers_of_ordinary_size_are(text, value):
    check_code(as_python(text))
    assert sympy_parser.parse_expr(text.replace("^", "**"), transformations=TRANSFORMATIONS) == value


expressions = st.recursive(
    st.sampled_from(["x", "pi", "1", "2", "30", "0.5", "3.5e2"]),
    lambda inner: st.one_of(
        st.builds("({}+{})".format, inner, inner),
        st.builds("({}*{})".format, inner, inner),
        st.builds("sqrt({})".format, inner),
        st.builds("({}**{})".format, inner, st.sampled_from(["2", "3", "(-1)", "10"])),
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(expressions)
def test_what_passes_is_no_larger_than_the_bound(text):
    try:
        check_code(as_python(text))
    except NotMathematicsError:
        return
    value = sympy_parser.parse_expr(text, transformations=TRANSFORMATIONS).subs("x", 2)
    assert abs(sympy.log(abs(value) + 1, 2).evalf()) <= 20_000


def test_depth_counts_open_brackets_only():
    assert not is_too_deep("(" * MAX_DEPTH + ")" * MAX_DEPTH)
    assert is_too_deep("([{" * (MAX_DEPTH // 3) + "(((")
    assert not is_too_deep("(1)[2]{3}" * 1000)
    assert not is_too_deep(")" * 1000 + "(")


def test_the_guard_stands_before_eval_for_everything_that_calls_sympy():
    # In a process of its own: what is guarded stays guarded. Control: before that, the text is run.
    probe = """
import sympy, sympy.parsing.sympy_parser as parser
from seele.reward.expression_filter import NotMathematicsError, guard
text = "__import__('sys').stdout.write('ran ')"
def read_all():
    for read in (sympy.sympify, parser.parse_expr, lambda text: parser.parse_expr(text, evaluate=False)):
        try: read(text)
        except (NotMathematicsError, sympy.SympifyError): print("refused", end=" ")
        except Exception: pass
read_all()
guard(parser)
read_all()
"""
    said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["ran"] * 3 + ["refused"] * 3
