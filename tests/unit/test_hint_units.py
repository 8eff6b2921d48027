"""Units of hints, and hints that must not state the answer."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.config import HintConfig
from seele.data.steps.hint_units import check_unit, for_hints, split_tokens
from seele.errors import ConfigError
from seele.hints import CONTROLLERS, build_controller
from seele.records import Instance

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
    with pytest.raises(ConfigError, match=r"seele\.hints\.unit: 'token', but .* allowed with it are 'step'"):
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
        ratio = controller.next_hint_ratio(
            "toy/1", round_index=round_index, legal_ratios=bounded.legal_hint_ratios
        )
        assert ratio in bounded.legal_hint_ratios
        controller.observe("toy/1", hint_ratio=ratio, num_correct=0, num_rollouts=4)


def test_unknown_units_and_rules_are_refused():
    with pytest.raises(ValueError, match=r"unit must be one of \['step', 'sentence', 'token'\], got 'word'"):
        HintConfig(unit="word")
    with pytest.raises(ValueError, match="revealing must be 'allow' or 'forbid', got 'no'"):
        HintConfig(revealing="no")
