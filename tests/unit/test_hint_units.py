"""Units of hints, GSM8K's lines, and where a solution states its answer."""

import dataclasses
import itertools
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.controllers import next_hint, observe
from helpers.real_data import SHARED, needs_shared
from seele.config import HintConfig
from seele.data.steps.hint_units import check_unit, for_hints, split_tokens
from seele.data.steps.leakage import bare_answer, mentioned_at, mentioned_end, revealed_at, stated_end
from seele.data.tasks.gsm8k import HUB_NAME, HUB_REVISION, read_gsm8k, split_solution
from seele.errors import ConfigError, DataError, DependencyError
from seele.hints import CONTROLLERS, build_controller
from seele.records import Instance
from seele.reward.extract import last_boxed

# --- Units of hints, and hints that must not state the answer


PROBLEM = Instance(
    instance_id="toy/1",
    data_source="toy",
    question="3 * 4?",
    steps=("Take 3. Take 4.\n", "3 * 4 = 12. Fine.\n", "So \\boxed{12}."),
    answer="12",
)


class Bytes:
    """A tokenizer whose tokens are bytes, and the digraph "th"."""

    def encode(self, text, *, add_special_tokens):
        ids = []
        for part in text.encode().split(b"th"):
            ids += [*part, 256]
        return ids[:-1]

    def decode(self, token_ids, *, clean_up_tokenization_spaces):
        parts = (b"th" if token == 256 else bytes([token]) for token in token_ids)
        return b"".join(parts).decode(errors="replace")


class Prefixed(Bytes):
    """Puts a mark before every text, as SentencePiece puts a blank."""

    def encode(self, text, *, add_special_tokens):
        return [95, *super().encode(text, add_special_tokens=add_special_tokens)]

    def decode(self, token_ids, *, clean_up_tokenization_spaces):
        return super().decode(token_ids, clean_up_tokenization_spaces=False).removeprefix("_")


def test_tiers_are_hints_of_their_own_where_they_are_asked_for():
    tiered = dataclasses.replace(PROBLEM, tiers=("multiply", "3 times 4"))
    hints = HintConfig(kind="tiers", placement="user", request="{question} {hint}")
    assert for_hints(tiered, hints, Bytes()) is tiered
    assert tiered.legal_hint_ratios == (0.0, 1 / 3, 2 / 3)
    assert [tiered.hint(tiered.num_hint_steps(ratio)) for ratio in tiered.legal_hint_ratios] == [
        *("", "multiply", "3 times 4")
    ]
    assert for_hints(PROBLEM, hints, Bytes()).legal_hint_ratios == (0.0,), "no tier, no hint"
    assert for_hints(tiered, HintConfig(), Bytes()) == PROBLEM
    assert PROBLEM.hint(2) == "".join(PROBLEM.steps[:2])


def test_by_default_problems_stay_as_they_are():
    assert for_hints(PROBLEM, HintConfig(), Bytes()) is PROBLEM


def test_without_hints_their_units_do_not_matter():
    hints = HintConfig(controller="none", unit="token", revealing="forbid")
    assert for_hints(PROBLEM, hints, Prefixed()) is PROBLEM


def test_sentences_cut_each_step_again():
    cut = for_hints(PROBLEM, HintConfig(unit="sentence"), Bytes())
    assert cut.steps == ("Take 3. ", "Take 4.\n", "3 * 4 = 12. ", "Fine.\n", "So \\boxed{12}.")
    assert len(cut.legal_hint_ratios) == 5


def test_tokens_are_those_of_the_steps():
    cut = for_hints(PROBLEM, HintConfig(unit="token"), Bytes())
    encode = Bytes().encode
    of_units = [token for unit in cut.steps for token in encode(unit, add_special_tokens=False)]
    of_steps = [token for step in PROBLEM.steps for token in encode(step, add_special_tokens=False)]
    assert of_units == of_steps and "".join(cut.steps) == "".join(PROBLEM.steps)
    # Blanks go with what follows them; a hint may end after any other character.
    assert cut.steps[:4] == ("T", "a", "k", "e") and " 3" in cut.steps


@settings(max_examples=200)
@given(text=st.text(max_size=40) | st.text(alphabet="th \ně€😀", max_size=40))
def test_units_of_tokens_are_texts_with_the_tokens_of_the_whole(text):
    tokenizer = Bytes()
    try:
        ids = tokenizer.encode(text, add_special_tokens=False)
    except UnicodeEncodeError:
        return
    pieces = split_tokens(text, tokenizer)
    assert "".join(pieces) == (text if text.strip() else "")
    assert all(piece.strip() for piece in pieces)
    if pieces:
        parts = [tokenizer.encode(piece, add_special_tokens=False) for piece in pieces]
        assert list(itertools.chain(*parts)) == ids


def test_a_character_of_several_tokens_is_one_unit():
    assert split_tokens("a€th", Bytes()) == ("a", "€", "th")


def test_tokens_that_do_not_stand_for_themselves_are_refused():
    with pytest.raises(ConfigError, match=r"seele\.hints\.unit: 'token', but .* use 'step' or 'sentence'"):
        check_unit(HintConfig(unit="token"), Prefixed())
    check_unit(HintConfig(unit="sentence"), Prefixed())
    check_unit(HintConfig(unit="token", controller="none"), Prefixed())


def longest_hint(solution, unit):
    cut = for_hints(dataclasses.replace(PROBLEM, steps=solution), HintConfig(unit=unit), Bytes())
    return "".join(cut.steps[: round(cut.legal_hint_ratios[-1] * len(cut.steps))])


@pytest.mark.parametrize("unit", ["step", "sentence", "token"])
def test_no_hint_opens_the_box_that_is_graded(unit):
    assert longest_hint(("First \\boxed{4}. ", "So \\boxed{12}", ". As said.\n", "Done."), unit) == (
        "First \\boxed{4}. " + ("So" if unit == "token" else "")
    )


@pytest.mark.parametrize("unit", ["step", "sentence", "token"])
def test_without_a_box_smaller_units_keep_out_of_the_last_step(unit):
    assert longest_hint(("1. 2.\n", "3. 4."), unit) == "1. 2.\n"


@pytest.mark.parametrize(("unit", "longest"), [("step", 1), ("sentence", 2)])
def test_a_forbidden_hint_ends_before_the_answer_is_stated(unit, longest):
    bounded = for_hints(PROBLEM, HintConfig(unit=unit, revealing="forbid"), Bytes())
    assert bounded.longest_hint == longest
    assert bounded.legal_hint_ratios == tuple(n / len(bounded.steps) for n in range(longest + 1))
    assert "12" not in "".join(bounded.steps[:longest])


def test_a_forbidden_hint_of_tokens_stops_within_the_step():
    bounded = for_hints(PROBLEM, HintConfig(unit="token", revealing="forbid"), Bytes())
    assert "".join(bounded.steps[: bounded.longest_hint]) == "Take 3. Take 4.\n3 * 4 = 1"


def test_what_the_file_says_is_believed_for_its_own_steps_only():
    marked = dataclasses.replace(PROBLEM, revealed_at=1)
    assert for_hints(marked, HintConfig(revealing="forbid"), Bytes()).legal_hint_ratios == (0.0,)
    assert for_hints(marked, HintConfig(unit="sentence", revealing="forbid"), Bytes()).revealed_at == 3


@pytest.mark.parametrize("steps", [(), ("= 12",)])
def test_problems_without_a_hint_stay_without(steps):
    short = dataclasses.replace(PROBLEM, steps=steps)
    assert for_hints(short, HintConfig(revealing="forbid"), Bytes()).legal_hint_ratios == (0.0,)


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_every_controller_keeps_to_the_hints_that_are_left(name):
    bounded = for_hints(PROBLEM, HintConfig(unit="sentence", revealing="forbid"), Bytes())
    needed = {"ratio": 0.9} if name == "fixed" else {}
    controller = build_controller(name, rounds=3, rollouts_per_round=4, seed=0, **needed)
    for round_index in range(3):
        ratio = next_hint(
            controller, "toy/1", round_index=round_index, legal_ratios=bounded.legal_hint_ratios
        )
        assert ratio in bounded.legal_hint_ratios
        observe(controller, "toy/1", hint_ratio=ratio, num_correct=0, num_rollouts=4)


def test_unknown_units_and_rules_are_refused():
    with pytest.raises(ValueError, match=r"unit must be one of \['step', 'sentence', 'token'\], got 'word'"):
        HintConfig(unit="word")
    with pytest.raises(ValueError, match=r"revealing must be one of \['allow', 'forbid'\], got 'no'"):
        HintConfig(revealing="no")


# --- GSM8K: solution lines become steps


ROW = {"question": "Two boxes of 6 eggs?", "answer": "2*6=<<2*6=12>>12 eggs.\nThat is a dozen.\n#### 12"}


def write_split(folder: Path, *rows: object) -> Path:
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_steps_are_the_solution_lines_and_the_boxed_answer():
    steps, answer = split_solution(ROW["answer"])
    assert steps == ("2*6=12 eggs.\n", "That is a dozen.\n", "The answer is \\boxed{12}.")
    assert answer == "12"


@pytest.mark.parametrize(
    ("last_line", "answer"),
    [("#### 1,234,567", "1234567"), ("#### -5", "-5"), ("####0.75 ", "0.75"), ("#### $1,000.50", "1000.50")],
)
def test_the_gold_is_a_plain_number(last_line, answer):
    steps, gold = split_solution(f"One line.\r\n \n{last_line}\n")
    assert (gold, steps) == (answer, ("One line.\n", f"The answer is \\boxed{{{answer}}}."))


@pytest.mark.parametrize("solution", ["12", "#### ", "#### many", "#### 12\nand more"])
def test_a_solution_without_a_final_number_is_refused(solution):
    with pytest.raises(ValueError, match="'#### number'"):
        split_solution(solution)


def test_ids_follow_the_content_and_not_the_position(tmp_path):
    other = ROW | {"question": "Three boxes?"}
    first, second = read_gsm8k("train", folder=write_split(tmp_path, ROW, other))
    [alone] = read_gsm8k("train", folder=write_split(tmp_path, other))
    assert alone.instance_id == second.instance_id != first.instance_id


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"question": "?"}, "key 'answer': expected a text that is not blank, got None"),
        ({"question": 3, "answer": "#### 1"}, "key 'question'"),
        (["?"], "key 'question'"),
        ({"question": "?", "answer": "it is 3"}, "key 'answer': the solution must end in"),
    ],
)
def test_a_bad_row_is_named_with_file_line_and_key(tmp_path, row, complaint):
    with pytest.raises(DataError, match=rf"train\.jsonl: line 2.*{complaint}"):
        read_gsm8k("train", folder=write_split(tmp_path, ROW, row))


def test_a_missing_split_is_named(tmp_path):
    with pytest.raises(DataError, match=r"test\.jsonl: no such file"):
        read_gsm8k("test", folder=tmp_path)


def test_without_a_folder_the_pinned_revision_comes_from_the_hub(tmp_path, serve_rows):
    hub = serve_rows([ROW])
    assert read_gsm8k("train") == read_gsm8k("train", folder=write_split(tmp_path, ROW))
    assert hub.calls == [((HUB_NAME, "main"), {"split": "train", "revision": HUB_REVISION})]


def test_a_hub_that_cannot_be_reached_suggests_a_folder(serve_rows):
    serve_rows(None)
    with pytest.raises(DataError, match=r"Couldn't reach the hub.*give the folder"):
        read_gsm8k("test")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DependencyError, match="pip install datasets"):
        read_gsm8k("test")


@needs_shared
@pytest.mark.parametrize(("split", "count"), [("train", 7473), ("test", 1319)])
def test_every_real_problem_can_be_hinted_and_states_its_gold_last(split, count):
    instances = read_gsm8k(split, folder=SHARED / "gsm8k")
    assert len({instance.instance_id for instance in instances}) == len(instances) == count
    for instance in instances:
        assert len(instance.steps) >= 2
        assert (
            last_boxed(instance.steps[-1])
            == instance.answer
            == str(float(instance.answer)).removesuffix(".0")
        )
        assert "<<" not in "".join(instance.steps)


# --- Where a solution states its answer: as a result, not by chance, however it is written


STATED = [
    ("so \\boxed{12}", "12"),
    ("= \\boxed{\\frac12}", "\\frac{1}{2}"),
    ("\\boxed{\\text{(B)}}", "B"),
    ("The answer is 12.", "12"),
    ("The final answer is: $12$", "12"),
    ("**Answer:** 1,234 apples", "1234"),
    ("Correct answer - A", "A"),
    ("Answer: option C", "C"),
    ("#### 12", "12"),
    ("<answer> 12 </answer>", "12"),
    ("3 * 4 = 12 apples", "12"),
    ("she has 3 * 4 = $12.00.", "12"),
    ("costs = \\$1,234", "1234"),
    ("n = 1{,}234 \\]", "1234"),
    ("x = -5", "-5"),
    ("x = - 5.", "-5"),
    ("x = \\dfrac{1}{2}$", "$x = \\frac{1}{2}$"),
    ("p = 1/2", "\\frac{1}{2}"),
    ("(x, y) = (2, 3)", "\\left( 2, 3 \\right)"),
    ("which is 12\\text{ cm}", "12"),
    ("\\angle = 80^\\circ", "80"),
    ("m \\geq 90$", "90"),
    ("5 = a.", "5"),
    ("the sum \\binom{10}{2}x^{3} + 123 turns up", "\\binom{10}{2} x^3+123"),
    ("Therefore, (1) Riley is a knave\n(2) Zoey is a knight", "(1) Riley is a knave\n(2) Zoey is a knight"),
    ("sum = 031", "31"),
    ("half of it = .5", "0.50"),
    ("is 50\\%", "50%"),
    ("So \\boxed{2,3}", "2,3"),
    ("x = 1, 3, 5", "1,3,5"),
    ("The answer is **-5**.", "-5"),
    ("$x \\geq-5$", "-5"),
    ("The answer is yes.", "Yes"),
    ("so \\boxed{-3}", "-3"),
    ("#### -3", "-3"),
    ("Final answer: $-3$", "-3"),
    ("so we get -3 = x.", "-3"),
]


@pytest.mark.parametrize(("text", "answer"), STATED)
def test_a_result_is_stated_however_it_is_written(text, answer):
    assert stated_end(text, answer) is not None


CHANCE = [
    ("He has 2 dogs and 12 cats.", "12"),
    ("= 12 + 3", "12"),
    ("= 12x + 3", "12"),
    ("= 12 \\times 3", "12"),
    ("= 12 \\text{ cats} \\times 3", "12"),
    ("there are 15 x 3 = 45", "15"),
    ("2b + 10 = 3b", "10"),
    ("= 12/5", "12"),
    ("= 12.5", "12"),
    ("= 1,312", "312"),
    ("= 112", "12"),
    ("= -5", "5"),
    ("so \\boxed{-5}", "5"),
    ("2b - 10 = b", "-10"),
    ("= 5", "-5"),
    ("x^{12}", "12"),
    ("= 23", "2,3"),
    ("= \\pi-5", "-5"),
    ("= ab", "AB"),
    ("= 12^2", "12"),
    ("= 0.5", "\\frac{1}{2}"),
    ("A train and A car", "A"),
    ("let the answer be", "12"),
    ("", "12"),
]


@pytest.mark.parametrize(("text", "answer"), CHANCE)
def test_a_number_that_only_stands_there_is_not_stated(text, answer):
    assert stated_end(text, answer) is None


def test_a_mention_is_a_number_of_its_own():
    assert mentioned_end("He has 12 cats, 120 dogs", "12") == len("He has 12")
    assert mentioned_end("He has 120 cats, 3.12 and 12,000", "12") is None


STEPS = ("Take 3 and 12.\n", "3 * 4 = 12 apples.\n", "So \\boxed{12}.")


def test_hand_worked_solution():
    # Mentioned in the first step, stated in the second, boxed in the third.
    assert revealed_at(STEPS, "12") == 2
    assert mentioned_at(STEPS, "12") == 1
    assert revealed_at(STEPS, "13") == mentioned_at(STEPS, "13") == 3


def test_a_statement_over_two_steps_shows_with_the_second():
    assert revealed_at(("It is =", " 12 ", "or so."), "12") == 2
    assert revealed_at(("= 1", "2, that is", " all"), "12") == 2


def test_nothing_is_revealed_before_the_last_step_or_without_steps():
    assert revealed_at(("only = 12",), "12") == 1
    assert revealed_at((), "12") == 0
    for answer in (r"\frac43", r"\frac 43", r"\dfrac{4}{3}", "4/3"):
        assert revealed_at((r"So $x = \frac{4}{3}$. ", r"Hence \boxed{\frac43}."), answer) == 1, answer
        assert revealed_at((r"So $x = \frac43$. ", r"Hence \boxed{4/3}."), answer) == 1, answer


NOISE = st.text(alphabet="=12,. $\\{}()boxedfracanswer is-/%\n", max_size=60)


@given(steps=st.lists(NOISE, min_size=1, max_size=6), answer=NOISE)
def test_a_statement_is_a_mention_and_lies_within_the_steps(steps, answer):
    assert 1 <= mentioned_at(steps, answer) <= revealed_at(steps, answer) <= len(steps)


@given(steps=st.lists(NOISE, min_size=1, max_size=4), more=st.lists(NOISE, max_size=3), answer=NOISE)
def test_steps_after_the_statement_do_not_move_it(steps, more, answer):
    # The line ends keep a number at the end of the steps from growing.
    steps, answer = [*steps, "\nso\n"], f"7{answer}"
    if (first := revealed_at(steps, answer)) < len(steps):
        assert revealed_at([*steps, *more], answer) == first


@pytest.mark.parametrize("unit", ["= ", "=(", "is the ", "1,", "-", "option ", "{", "\\frac", "\\text{"])
@pytest.mark.parametrize("answer", ["12", "\\frac{1}{2}", "x+1", "A"])
def test_time_grows_with_the_length_and_not_with_its_square(unit, answer):
    # A fifth of a second; with the square of the length it would be hours.
    stated_end(unit * (2_000_000 // len(unit)), answer)


def test_an_answer_of_many_dollar_signs_is_taken_as_it_is():
    # With a cubic search this takes hours.
    assert bare_answer("$" * 10_000 + "x") == "$" * 10_000 + "x"
    assert bare_answer("$$x$$.") == "x"
