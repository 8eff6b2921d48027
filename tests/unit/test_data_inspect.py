"""``seele data inspect``: hints on the terminal or as a page, and statistics."""

from html.parser import HTMLParser

import pytest

from seele.cli.main import main
from seele.data.statistics import describe_problems
from seele.data.storage.schema import write_problems
from seele.records import Instance


def problem(number, **changes):
    fields = {
        "instance_id": f"toy/{number}",
        "data_source": "toy",
        "question": "3 * 4?",
        "steps": ("Take 3 & 4.\n", "3 * 4 = 12.\n", "So \\boxed{12}."),
        "answer": "12",
        "level": 1,
    }
    return Instance(**fields | changes)


HOSTILE = problem(
    2,
    question="[/red] [bold]x[/] <script>alert(1)</script> \x1b[31m",
    steps=("[link=file:///etc] </pre><b>&amp;\n", "[/]"),
    answer="[/] <i>",
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "train.parquet"
    write_problems(path, [problem(1), HOSTILE, problem(3, steps=(), level=2)], split="train")
    return path


def test_hints_that_state_the_answer_are_marked_on_the_terminal(file, capsys):
    main_status("data", "inspect", file, "--num", 1)
    lines = capsys.readouterr().out.splitlines()
    [stating] = [line for line in lines if "3 * 4 = 12." in line]
    [before] = [line for line in lines if "Take 3 & 4." in line]
    [last] = [line for line in lines if "boxed{12}" in line]
    assert "0.667" in stating and "yes" in stating
    assert "0.333" in before and "yes" not in before
    assert "never" in last


def test_markup_and_control_characters_in_texts_are_shown_and_not_obeyed(file, capsys):
    main_status("data", "inspect", file, "--num", 3)
    shown = capsys.readouterr().out
    assert "[/red] [bold]x[/]" in shown and "\\x1b[31m" in shown and "\x1b[31m" not in shown


def test_the_page_escapes_texts_and_marks_hints(file, tmp_path):
    main_status("data", "inspect", file, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    parser = Elements()
    parser.feed(page)
    assert "script" not in parser.tags and "i" not in parser.tags
    assert not parser.addresses, "nothing is loaded from elsewhere"
    assert "<mark>3 * 4 = 12.\n</mark>" in page and "<mark>Take" not in page
    assert "&lt;script&gt;" in page and "</pre>&lt;" not in page


class Elements(HTMLParser):
    """Names of the page's elements, and what it points to."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]


def test_statistics_by_source_and_level(file, capsys):
    main_status("data", "inspect", file, "--num", 0, "--stats")
    shown = " ".join(capsys.readouterr().out.split())
    for name in ("toy", "no hint possible", "hints stating it", "33.3%"):
        assert name in shown


def test_hand_worked_statistics():
    # Of the two hints of each toy problem the longer states the answer; the other's only hint mentions it.
    problems = [problem(1), problem(2), problem(3, data_source="other", steps=("12 of it\n", "= 7"))]
    other, toy, everything = describe_problems(problems)
    assert (other.data_source, toy.data_source, everything.data_source) == ("other", "toy", "all")
    assert (toy.revealing_share, toy.mentioning_share, toy.stated_early_share) == (0.5, 0.5, 1.0)
    assert (other.revealing_share, other.mentioning_share, other.stated_early_share) == (0.0, 1.0, 0.0)
    assert (everything.revealing_share, everything.mentioning_share) == (2 / 5, 3 / 5)
    assert (toy.steps_median, toy.solution_chars_max, toy.step_chars_median) == (3, 38, 12)


def test_levels_are_rows_of_their_own():
    groups = describe_problems([problem(1), problem(2, level=3), problem(3, level=3)])
    assert [(group.level, group.problems) for group in groups] == [("all", 3), ("1", 1), ("3", 2)]


def main_status(*arguments):
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert end.value.code == 0
