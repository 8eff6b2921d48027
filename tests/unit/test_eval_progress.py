"""How far an evaluation is: rate, time left, one line or many."""

import io

import pytest

from seele_eval.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def advance(stream, seconds_each, *, total, done=0, wait_s=0.0):
    clock = Clock()
    progress = Progress(stream, total=total, done=done, clock=clock)
    clock.now += wait_s
    for _ in range(total - done):
        clock.now += seconds_each
        progress.advance()
    return stream.getvalue()


def test_a_log_gets_a_line_every_half_minute_and_one_at_the_end():
    lines = advance(io.StringIO(), 1.0, total=100).splitlines()
    assert lines[0] == "31/100 samples, 1.0 a second, 1 min 09 s left"
    assert lines[-1] == "100/100 samples, 1.0 a second, 0 s left"
    assert len(lines) == 4


def test_a_terminal_gets_one_line_that_is_written_over():
    text = advance(Terminal(), 1.0, total=5)
    assert text.count("\n") == 1 and text.count("\r") == 4


def test_neither_the_start_of_the_engine_nor_earlier_samples_count_for_the_rate():
    lines = advance(io.StringIO(), 1.0, total=100, done=50, wait_s=500.0).splitlines()
    assert lines[0] == "81/100 samples, 1.0 a second, 19 s left"


def test_one_sample_that_was_left_has_no_rate_and_is_said_all_the_same():
    assert advance(io.StringIO(), 1.0, total=100, done=99) == "100/100 samples\n"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")]
)
def test_durations_are_said_as_people_do(seconds, words):
    assert duration(seconds) == words
