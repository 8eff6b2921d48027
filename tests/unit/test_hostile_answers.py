"""What anybody may write into a box: none of it hangs, crashes the pool, is run, or costs another answer."""

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seele.records import GradeReason
from seele.reward.grader import GraderPool
from seele.reward.graders import load_judge
from seele.reward.multiple_choice import grade_choice

MEGABYTE = 1_000_000
TIME_LIMIT_S = 0.3
MEMORY_LIMIT_MB = 512

Kind = Callable[[random.Random, str], object]


def python_code(rng: random.Random, canary: str) -> str:
    """Makes the file ``canary`` if it is run; most of it also where sympy reads it."""
    command = rng.choice(
        [
            f"__import__('os').system('touch {canary}')",
            f"__import__('pathlib').Path('{canary}').touch()",
            f"open('{canary}','w')",
            f"eval(\"open('{canary}','w')\")",
            f"(lambda: open('{canary}', 'w'))()",
            f"().__class__.__base__.__subclasses__() and open('{canary}','w')",
        ]
    )
    # Has no letters, so that MathRuler's rule of two letters lets it through.
    octal = "".join(f"\\{ord(character):03o}" for character in command)
    frames = [
        "{}",
        "sqrt('{}')",
        "frac('{}')-1",
        "f({})",
        "1+{}",
        "(x,{})",
        r"\sqrt{{{}}}",
        r"\operatorname{{f}}({})",
        "$x_{{{}}}$",
        r"\text{{{}}}",
        "x;{}",
        "x\n{}",
    ]
    return rng.choice(frames).format(rng.choice([command, octal]))


def power_tower(rng: random.Random, _: str) -> str:
    base, height = rng.randint(2, 99), rng.randint(3, 40)
    towers = [
        "**".join([str(base)] * height) + "+0.5",
        "^".join([str(base)] * height),
        f"{base}^{{" * height + "9" + "}" * height,
        f"(({base}**999)**999)**999+0.5",
        f"{base}**(9*9*9*9*9*9*9*9)+x",
        f"(x+1)**{10 ** rng.randint(3, 12)}",
        f"x^{{{base}^{{{base}^{{{base}}}}}}}",
    ]
    return rng.choice(towers)


def factorial(rng: random.Random, _: str) -> str:
    number = rng.randint(10**4, 10**9)
    return rng.choice(
        [f"{number}!+0.5", "9" + "!" * rng.randint(3, 60), f"({number}!)!", rf"{number}!\cdot x"]
    )


def shift(rng: random.Random, _: str) -> str:
    number = rng.randint(10**6, 10**12)
    return rng.choice(
        [f"1<<{number}", f"(1<<{number})+0.5", f"[0]*{number}", f"'a'*{number}", f"1e{number}+x"]
    )


def slow(rng: random.Random, _: str) -> str:
    """Allowed, and more than there is time for."""
    return "(1+" + "+".join(f"sqrt({root})" for root in (2, 3, 5, 7)) + f")**{rng.randint(40, 99)}"


def deep_nesting(rng: random.Random, _: str) -> str:
    opening, closing = rng.choice(
        [*map(tuple, ("()", "[]", "{}")), (r"\frac{1}{", "}"), (r"\sqrt{", "}"), (r"\left(", r"\right)")]
    )
    depth = rng.choice([60, 99, 300])
    return opening * depth + "x" + closing * depth


def megabytes(rng: random.Random, _: str) -> str:
    unit = rng.choice(["{", "}", "\\", "9", "(", "$", r"\boxed{", "\n", " x", "-", "^", "\u00e9"])
    return unit * (MEGABYTE // len(unit)) + rng.choice(["", "1", r"\boxed{1}"])


def tiresome(rng: random.Random, _: str) -> str:
    """Short enough to be read."""
    units = [
        "9",
        "-",
        "(x+1)*",
        "x^",
        "1,",
        r"\frac",
        r"\sqrt ",
        "{}",
        "$ ",
        r"\(",
        "a+",
        "1/",
        "!",
        "'",
        "sqrt",
    ]
    unit = rng.choice(units)
    return unit * (rng.randint(300, 990) // len(unit)) + rng.choice(["", "1", "x"])


def unbalanced(rng: random.Random, _: str) -> str:
    return "".join(rng.choices("{}[]()$\\|^_&%#~x1+-/.,", k=rng.randint(1, 80)))


def unicode_text(rng: random.Random, _: str) -> str:
    # From 0xD800 on: surrogates without their other half.
    points = (rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0xD800, 0x11000)]) for _ in range(40))
    return "".join(map(chr, points))


def null_bytes(rng: random.Random, _: str) -> str:
    return rng.choice(["\0", "1\0", "\0" * 500, "x\0+1", "\\frac{1}{\0}"])


def no_text(rng: random.Random, _: str) -> object:
    return rng.choice([None, 3, 2.5, True, ["1"], {"a": 1}, b"1", object()])


KINDS: list[Kind] = [
    python_code,
    power_tower,
    factorial,
    shift,
    deep_nesting,
    megabytes,
    tiresome,
    unbalanced,
    unicode_text,
    null_bytes,
    no_text,
    python_code,
    slow,
]


def hostile_answers(count: int, *, seed: int, canary: Path) -> Iterator[object]:
    """``count`` answers, the kinds in turn."""
    rng = random.Random(seed)
    return (KINDS[index % len(KINDS)](rng, str(canary)) for index in range(count))


def grade_among_honest_answers(grader: str, count: int, canary: Path) -> dict[str, Any]:
    """Grade ``count`` hostile answers, an honest one right behind each, in the same messages."""
    pairs = [
        pair
        for number, answer in enumerate(hostile_answers(count, seed=count, canary=canary))
        for pair in ((answer, "x+0.5"), (f"{number}/4+x", f"x+{number / 4}"))
    ]
    began = time.monotonic()
    with GraderPool(
        grader=grader, num_workers=2, time_limit_s=TIME_LIMIT_S, memory_limit_mb=MEMORY_LIMIT_MB
    ) as pool:
        grades = pool.grade_answers(pairs)
        elapsed_s = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "correct": [grade.correct for grade in grades],
        "reasons": sorted({grade.reason.value for grade in grades}),
        "elapsed_s": elapsed_s,
        "computed_s": used.ru_utime + used.ru_stime,
        "memory_mb": used.ru_maxrss / 1024,
    }


@pytest.mark.parametrize(("grader", "count"), [("mathruler", 1000), ("strict+", 104)])
def test_hostile_answers_cost_nothing_but_themselves(tmp_path, grader, count):
    if grader != "mathruler":
        pytest.importorskip("math_verify")
    canary = tmp_path / "canary"
    # In a process whose children are the graders: to the kernel, what they were forked from counts as theirs.
    command = [sys.executable, __file__, grader, str(count), str(canary)]
    run = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert run["correct"] == [False, True] * count
    assert GradeReason.TIMEOUT in run["reasons"]
    assert not canary.exists()
    # Measured: 20 s of processor time, half of it by the clock of two idle cores. Other work may run beside.
    assert run["elapsed_s"] < 300.0
    assert run["computed_s"] < 60.0
    assert run["memory_mb"] < MEMORY_LIMIT_MB


def test_the_code_among_them_is_live(tmp_path):
    # Control: without the guard, sympy runs it.
    canary = tmp_path / "canary"
    probe = "import sys, sympy\ntry: sympy.sympify(sys.argv[1])\nexcept Exception: pass"
    rng = random.Random(0)
    for _ in range(5):
        subprocess.run([sys.executable, "-c", probe, python_code(rng, str(canary))], cwd=tmp_path, check=True)
    assert canary.exists()


@pytest.mark.parametrize("grader", ["mathruler", "math_verify", "strict+"])
def test_the_gate_alone_lets_no_code_through(tmp_path, grader):
    if grader != "mathruler":
        pytest.importorskip("math_verify")
    # Here, in a process that may do everything.
    judge, rng = load_judge(grader), random.Random(1)
    for _ in range(200):
        code = python_code(rng, str(tmp_path / "canary"))
        try:
            assert not judge(code, "x+0.5"), code
        except Exception as error:  # noqa: BLE001 - anything may be raised; the pool counts it
            assert not isinstance(error, AssertionError)
    assert os.listdir(tmp_path) == []


def test_multiple_choice_survives_them_in_this_process(tmp_path):
    started = time.monotonic()
    for answer in hostile_answers(300, seed=3, canary=tmp_path / "canary"):
        answer = answer if isinstance(answer, str) else None
        assert not grade_choice(answer, "C", ("Paris", "Rome", "Oslo")).correct
    assert time.monotonic() - started < 30.0
    assert os.listdir(tmp_path) == []


if __name__ == "__main__":
    print(json.dumps(grade_among_honest_answers(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))  # noqa: T201
