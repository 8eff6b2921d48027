"""``seele data hints``: from a reply to tiers, over real HTTP."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import exit_status as run
from seele.data.annotation.reply import Rejection
from seele.data.annotation.tiers import DEFAULT_PROMPTS, TiersPrompt
from seele.data.steps.leakage import stated_end
from seele.data.storage.files import file_sha256
from seele.data.storage.schema import read_problems, write_problems
from seele.endpoint import Reply
from seele.errors import ConfigError
from seele.records import Finish, Instance

# --- From a reply to tiers, or to the reason why it is not kept


LEVELS = TiersPrompt()
SCAFFOLD = TiersPrompt(form="scaffold", parts=2)
ABOUT = Instance(instance_id="i", data_source="sums", question="3 + 4?", steps=("7",), answer="7")
THREE = "Level 1: Sums.\n\nLevel 2: Count on\nfrom 3.\n\nLevel 3: Go four steps on from $3$."
SIX = "\n".join(f"{kind} {n}: {kind[0]}{n}" for kind in ("Knowledge", "Plan", "Solution") for n in (1, 2))


def verdict(text, finish=Finish.STOP, *, prompt=LEVELS):
    return prompt.judge(Reply(text=text, finish=finish, tokens_in=1, tokens_out=1, model="m"), ABOUT)


def test_levels_are_hints_by_themselves():
    tiers = ("Sums.", "Count on\nfrom 3.", "Go four steps on from $3$.")
    assert verdict(THREE) == (tiers, None)
    assert verdict(f"<think>Level 1: so it is 7</think>\n{THREE}\n") == (tiers, None)


def test_a_scaffold_adds_up_within_each_kind():
    assert verdict(SIX, prompt=SCAFFOLD) == (("K1", "K1\nK2", "P1", "P1\nP2", "S1", "S1\nS2"), None)
    twelve = "\n".join(
        f"**{kind} {n}:** {n}" for kind in ("Knowledge", "Plan", "Solution") for n in range(1, 5)
    )
    tiers, rejection = verdict(twelve, prompt=TiersPrompt(form="scaffold"))
    assert rejection is None and tiers == ("1", "1\n2", "1\n2\n3", "1\n2\n3\n4") * 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Rejection.REFUSED),
        ("I cannot help with that.", Rejection.FORMAT),
        ('{"level_1": "Sums.", "level_2": "Count.", "level_3": "Go on."}', Rejection.FORMAT),
        (f"Sure!\n{THREE}", Rejection.FORMAT),
        (SIX, Rejection.FORMAT),
        ("Level 1: Sums.\nLevel 2: Count.", Rejection.FORMAT),
        (f"{THREE}\nLevel 4: More.", Rejection.FORMAT),
        ("Level 2: Count.\nLevel 1: Sums.\nLevel 3: Go on.", Rejection.FORMAT),
        (THREE.replace("Sums", "Sums \ud83d"), Rejection.FORMAT),
        ("Level 1: Sums.\n**Level 2:**\n---\nLevel 3: Go on.", Rejection.BLANK_TIER),
        (THREE.replace("Sums.", "The answer is 7."), Rejection.STATES_ANSWER),
        (THREE.replace("from 3.", "from 3: $3 + 4 = 7$."), Rejection.STATES_ANSWER),
        (f"{THREE} You get \\boxed{{7}}.", Rejection.STATES_ANSWER),
        (f"{THREE} There are 17 and 7.5 to avoid.", None),
    ],
)
def test_what_is_not_kept_has_a_reason(text, reason):
    assert verdict(text)[1] is reason


def test_a_reply_that_was_cut_off_or_filtered_is_not_read():
    assert verdict(THREE, Finish.LENGTH) == ((), Rejection.TRUNCATED)
    assert verdict(THREE, Finish.ERROR) == ((), Rejection.REFUSED)


@pytest.mark.parametrize("number", range(6))
def test_an_answer_in_any_part_of_a_scaffold_is_found(number):
    lines = SIX.splitlines()
    lines[number] += " = 7"
    assert verdict("\n".join(lines), prompt=SCAFFOLD)[1] is Rejection.STATES_ANSWER


def test_an_answer_that_only_two_parts_together_state_is_found():
    said = SIX.replace("S1", "So the answer is").replace("S2", "7")
    assert verdict(said, prompt=SCAFFOLD)[1] is Rejection.STATES_ANSWER


BODIES = st.text(alphabet=" a7=\n\\boxed{}$.é数", max_size=20)


@given(st.lists(BODIES, min_size=2, max_size=4), st.sampled_from(["\n", "\n\n", " "]))
def test_whatever_is_said_tiers_that_are_kept_can_be_written_and_do_not_tell(bodies, separator):
    said = separator.join(f"Level {number}:{body}" for number, body in enumerate(bodies, start=1))
    tiers, rejection = verdict(said)
    if rejection is None:
        assert len(tiers) == 3 and all(tier.strip() == tier != "" for tier in tiers)
        assert all(stated_end(tier, "7") is None for tier in tiers)


# --- What is asked


@pytest.mark.parametrize("form", DEFAULT_PROMPTS)
def test_the_prompt_has_problem_solution_answer_and_every_heading(form):
    about = Instance(
        instance_id="i", data_source="d", question="{parts}?", steps=("It is\n", "é."), answer="é"
    )
    asked = TiersPrompt(form=form, parts=3 if form == "scaffold" else None).render(about)
    for part in ("\n{parts}?\n", "\nIt is\né.\n", "no hint may state: é"):
        assert part in asked
    for heading in ('"Level N:"',) if form == "levels" else ('"Knowledge 3:"', '"Plan 3:"', '"Solution 3:"'):
        assert heading in asked
    assert max(map(len, DEFAULT_PROMPTS[form].splitlines())) <= 110
    without = TiersPrompt(form=form).render(Instance(**about_fields(about) | {"steps": ()}))
    assert "learner does not see" in asked and "learner does not see" not in without


def about_fields(instance):
    return {name: getattr(instance, name) for name in instance.__slots__}


def test_prompts_that_differ_have_different_fingerprints():
    prompts = [
        *(LEVELS, SCAFFOLD, TiersPrompt(form="scaffold"), TiersPrompt(own="{question}")),
        *(TiersPrompt(own="{question}", form="scaffold", parts=parts) for parts in (2, 3)),
    ]
    assert len({prompt.sha256 for prompt in prompts}) == len(prompts)
    assert TiersPrompt(form="scaffold").sha256 == TiersPrompt(form="scaffold", parts=4).sha256


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"form": "tiers"}, r"form must be one of \['levels', 'scaffold'\], got 'tiers'"),
        ({"parts": 4}, "belongs to form=scaffold, got 4 with form=levels"),
        ({"form": "scaffold", "parts": 0}, "at least 1 .* got 0 with form=scaffold"),
        ({"own": "no field"}, r"no \{question\}; it may have 'question', 'reference', 'parts' in braces"),
    ],
)
def test_a_prompt_that_cannot_work_is_refused(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        TiersPrompt(**settings)


# --- ``seele data hints`` against a server, in this process and in one that is killed at random moments


ATTEMPTS = 2
PROBLEMS = [
    Instance(
        instance_id=f"sums-{number}",
        data_source="sums",
        question=f"¿What is {number} + 1? 数",
        steps=(f"One after {number}.\n", f"\\boxed{{{number + 1}}}"),
        answer=str(number + 1),
        level=number % 3,
        tiers=("old",),
    )
    for number in range(60)
]


def number_in(prompt):
    return int(re.search(r"What is (\d+) \+ 1\?", prompt)[1])


def hint(prompt, seed):
    """Good for most; a ninth of the problems needs the second attempt, and two more ninths have none."""
    number = number_in(prompt)
    if number % 9 == 4 or (number % 9 == 7 and not seed):
        return f"Level 1: Somme, naïvely.\nLevel 2: Count.\nLevel 3: It is {number + 1}."
    if number % 9 == 5:
        return '{"level_1": "Count."}'
    return "Level 1: Somme, naïvely: 数.\nLevel 2: Count.\nLevel 3: Go one on."


def command(server, folder, *more):
    return [
        *("data", "hints", folder / "in.parquet", "--out", folder / "out.parquet"),
        *("--endpoint", server.url, "--model", "m", "--attempts", ATTEMPTS, "--max-tokens", 1000),
        *("--concurrency", 4, *more),
    ]


@pytest.fixture
def folder(tmp_path):
    write_problems(tmp_path / "in.parquet", PROBLEMS, split="train")
    return tmp_path


def manifest(folder):
    return json.loads((folder / "out.manifest.json").read_text())


def test_every_problem_stays_and_those_without_a_good_reply_have_no_tiers(server, folder, capsys):
    server.answer = hint
    source = pq.read_table(folder / "in.parquet")
    source = source.append_column("note", pa.array([f"é{row}" for row in range(60)]))
    pq.write_table(source, folder / "in.parquet")
    assert run(*command(server, folder, "--price-in", 1, "--price-out", 2, "--max-cost", 1)) == 0
    hinted, written = read_problems(folder / "out.parquet"), pq.read_table(folder / "out.parquet")
    for before, after in zip(PROBLEMS, hinted, strict=True):
        kept = ("Somme, naïvely: 数.", "Count.", "Go one on.")
        bad = number_in(before.question) % 9 in (4, 5)
        assert about_fields(after) == about_fields(before) | {"tiers": () if bad else kept}
    assert written["tiers"].null_count == 14 and written.drop_columns("tiers") == source.drop_columns("tiers")

    counts = manifest(folder)
    assert counts["problems"] == {"hinted": 46, "format": 7, "states_answer": 7}
    assert counts["replies"] == {"accepted": 46, "format": 14, "states_answer": 20}
    assert "revealed_early" not in counts and "grader" not in counts["settings"]
    assert counts["settings"]["form"] == "levels" and counts["settings"]["prompt"] == LEVELS.template
    assert counts["sha256"] == file_sha256(folder / "out.parquet")
    assert counts["paid"]["replies"] == 80
    said = capsys.readouterr().out
    assert "problems: 60, 46 hinted, 7 format, 7 states_answer\n" in said
    assert "replies: 80, 46 accepted, 14 format, 20 states_answer\n" in said
    assert re.search(r"\npaid: 80 replies, .* cost 0\.\d{4}\n", said)


def test_a_file_without_the_column_gets_it(server, folder):
    server.answer = hint
    table = pq.read_table(folder / "in.parquet").drop_columns("tiers")
    pq.write_table(table, folder / "in.parquet")
    assert run(*command(server, folder)) == 0
    assert len(read_problems(folder / "out.parquet")[0].tiers) == 3


def test_a_scaffold_has_three_kinds_of_tiers(server, folder):
    server.answer = lambda prompt, seed: SIX
    assert run(*command(server, folder, "--form", "scaffold", "--parts", 2)) == 0
    first = read_problems(folder / "out.parquet")[0]
    assert first.tiers == ("K1", "K1\nK2", "P1", "P1\nP2", "S1", "S1\nS2")
    assert first.legal_hint_ratios == tuple(tier / 7 for tier in range(7))
    assert manifest(folder)["settings"]["parts"] == 2


def test_a_second_run_asks_nothing_and_writes_the_same_bytes(server, folder):
    server.answer = hint
    assert run(*command(server, folder)) == 0
    before, asked = {path.name: path.read_bytes() for path in folder.iterdir()}, len(server.asked)
    assert run(*command(server, folder, "--concurrency", 1)) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert len(server.asked) == asked == 80


def test_replies_to_a_prompt_of_ones_own_are_judged_anew_where_only_the_form_changes(server, folder):
    (folder / "prompt.txt").write_text("Hinweise für: {question}", encoding="utf-8")
    server.answer = lambda prompt, seed: SIX
    own = ("--prompt", folder / "prompt.txt", "--attempts", 1)
    assert run(*command(server, folder, *own)) == 2
    assert server.asked[0]["messages"][0]["content"].startswith("Hinweise für: ¿What is ")
    assert not (folder / "out.parquet").exists()
    assert run(*command(server, folder, *own, "--form", "scaffold", "--parts", 2)) == 0
    assert len(server.asked) == 60 and manifest(folder)["problems"] == {"hinted": 60}


def test_where_no_tiers_are_kept_nothing_is_written(server, folder, capsys):
    server.answer = lambda prompt, seed: "no"
    assert run(*command(server, folder)) == 2
    assert "not written, because no reply was kept.\nproblems: 60, 0 hinted" in capsys.readouterr().err
    assert not (folder / "out.parquet").exists() and not (folder / "out.manifest.json").exists()


def test_spending_needs_leave_and_goes_on_with_more(server, folder, capsys):
    server.answer = hint
    prices = ("--price-in", 1, "--price-out", 2)
    assert run(*command(server, folder, *prices, "--dry-run")) == 0
    assert re.search(
        r"60 different problems, 60 of them still .* cost \d+\.\d+ \(at most", capsys.readouterr().out
    )
    assert run(*command(server, folder, *prices)) == 2
    assert "--yes" in capsys.readouterr().err and server.asked == []
    assert run(*command(server, folder, *prices, "--max-cost", 0.02, "--yes")) == 1
    counts = manifest(folder)["problems"]
    assert 0 < counts["hinted"] < 46 and counts["budget"] > 0 and sum(counts.values()) == 60
    assert len(read_problems(folder / "out.parquet")) == 60
    assert run(*command(server, folder, *prices, "--max-cost", 5)) == 0
    assert manifest(folder)["problems"]["hinted"] == 46 and len(server.asked) == 80


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--form", "hints"), "form must be one of ['levels', 'scaffold']"),
        (("--parts", 4), "belongs to form=scaffold"),
        (("--prompt", "absent.txt"), "cannot be read as text"),
        (("--extra", "[1]"), "expected a JSON object"),
        (("--max-cost", 1), "without prices calls cost nothing"),
    ],
)
def test_what_the_user_gets_wrong_ends_with_one_line(server, folder, capsys, more, complaint):
    assert run(*command(server, folder, *more)) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
    assert server.asked == []
