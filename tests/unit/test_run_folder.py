"""What a run leaves and resumes from: checkpoints, logs, run card, progress lines."""

import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("omegaconf", reason="the training stack is not installed")

from omegaconf import OmegaConf

from seele.errors import CheckpointError, ConfigError
from seele.report.run_folder import STEP_FILE, TRACKER, read_step
from seele_verl import merge, train
from seele_verl.runs import card as run_card
from seele_verl.runs import checkpoints, resume, stages, undo
from seele_verl.runs.live import clock, draw_board, drawn_of, sparkline
from seele_verl.runs.log import RunLog, tracking, tracking_variables
from seele_verl.runs.progress import follow_metrics, format_step
from seele_verl.runs.resume import check_not_finished, check_same_run, final_step, prepare_start
from seele_verl.runs.stages import only_run_in
from seele_verl.runs.terminal import terminal_apart_from
from seele_verl.settings import planned_steps


def write_archive(file):
    """Write a file in the format of ``torch.save``."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", "state")


def save_checkpoint(run, step, *, complete=True):
    folder = checkpoints.step_folder(run, step)
    (folder / "actor").mkdir(parents=True)
    checkpoints.save_part(folder, "controller", {"step": step})
    if complete:
        write_archive(folder / "data.pt")
        (run / TRACKER).write_text(str(step))


def test_a_run_without_checkpoint_starts_from_scratch(tmp_path):
    assert checkpoints.repair_tracker(tmp_path) is None


def test_a_checkpoint_that_was_being_written_does_not_count(tmp_path):
    save_checkpoint(tmp_path, 10)
    save_checkpoint(tmp_path, 20, complete=False)
    assert checkpoints.repair_tracker(tmp_path) == 10


@pytest.mark.parametrize(
    "content", [b"", b"2", b"\x00", b"\xff"], ids=["cut", "no folder", "zeros", "garbage"]
)
def test_a_tracker_that_was_cut_off_names_the_newest_complete_checkpoint_again(tmp_path, content):
    # The last thing verl writes: everything else of the checkpoint is there.
    save_checkpoint(tmp_path, 10)
    save_checkpoint(tmp_path, 20)
    (tmp_path / TRACKER).write_bytes(content)
    assert checkpoints.repair_tracker(tmp_path) == 20
    assert (tmp_path / TRACKER).read_text() == "20"


@pytest.mark.parametrize("name", ["data.pt", "data_0.pt"], ids=["RL", "supervised"])
def test_without_a_tracker_the_newest_complete_checkpoint_counts(tmp_path, name):
    # Of the first one verl's tracker is missing until everything else is there.
    for step in (10, 20):
        save_checkpoint(tmp_path, step, complete=False)
    assert checkpoints.last_complete_step(tmp_path) is None
    written = checkpoints.step_folder(tmp_path, 10) / name
    for torn in (b"", b"PK"):  # the machine died before the disk had it
        written.write_bytes(torn)
        assert checkpoints.last_complete_step(tmp_path) is None
    write_archive(written)
    assert checkpoints.last_complete_step(tmp_path) == 10
    # The folder that it names was removed by hand.
    (tmp_path / TRACKER).write_text("30")
    assert checkpoints.repair_tracker(tmp_path) == 10
    assert (tmp_path / TRACKER).read_text() == "10"


def test_a_failed_run_is_told_what_the_same_command_does(tmp_path):
    error = RuntimeError(f"{train.NOT_STARTED}. This could happen because\nthe raylet failed.")
    said = train.describe_failure(error, tmp_path, [])
    assert re.search(r"too busy to start Ray \(load average [\d.]+, \d+ cores\): wait .*\. No check", said)
    assert said.endswith("No checkpoint yet: the same command starts again")
    save_checkpoint(tmp_path, 10)
    typed = ["method=seele", "trainer.resume_mode=auto"]
    said = train.describe_failure(RuntimeError("boom"), tmp_path, typed)
    assert said.startswith("training stopped: RuntimeError: boom; see ") and "busy" not in said
    assert said.endswith("The same command resumes from the last checkpoint")
    for mode in ("disable", "resume_path"):  # even if a restart has resumed from the run's own checkpoint
        typed = [f"trainer.resume_mode={mode}", "trainer.resume_mode=auto"]
        said = train.describe_failure(error, tmp_path, typed)
        assert "The same command with trainer.resume_mode=auto trainer.resume_from_path=null resumes" in said

    class OutOfMemoryError(RuntimeError):
        pass

    full = "5 worker(s) were killed due to the node running low on memory. 22.55GB used / 23.54GB limit.\n..."
    error = OutOfMemoryError(f"{full}\nRefer to the documentation on ...")
    said = train.describe_failure(error, tmp_path, [])
    assert "OutOfMemoryError: 5 worker(s) were killed" in said and "22.55GB used / 23.54GB limit" in said
    assert "Refer to" not in said and "end other programs there" in said
    by_ray = RuntimeError(
        "It died.\n\tclass_name: Grader\n\tactor_id: 33\n\tpid: 7\n\tip: 10.0.0.2\nIt is dead."
    )
    said = train.describe_failure(by_ray, tmp_path, [])
    assert said.startswith("training stopped: process Grader (pid 7, node 10.0.0.2) died: It is dead.; see ")


def save_recorded(run: Path, step: int) -> Path:
    folder = checkpoints.step_folder(run, step)
    with checkpoints.recording_files(folder):
        save_checkpoint(run, step)
        (folder / "actor" / "rank_0.pt").write_bytes(b"weights")
    return folder


def remove(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:3])


@pytest.mark.parametrize(
    ("damage", "name", "says"),
    [
        (remove, "actor/rank_0.pt", "actor/rank_0.pt is missing"),
        (cut, "actor/rank_0.pt", "actor/rank_0.pt has 3 of 7 bytes"),
        (remove, "data.pt", "data.pt is missing"),
        (remove, "seele/controller.json", "seele/controller.json is missing"),
        (cut, "seele/files.json", "seele/files.json is damaged"),
    ],
)
def test_a_checkpoint_that_lost_something_is_passed_over(tmp_path, damage, name, says):
    whole, damaged = save_recorded(tmp_path, 10), save_recorded(tmp_path, 20)
    assert checkpoints.last_complete_step(tmp_path) == 20
    assert checkpoints.damaged_checkpoints(tmp_path) == {}
    damage(damaged / name)
    assert checkpoints.damaged_checkpoints(tmp_path) == {damaged: says}
    assert checkpoints.repair_tracker(tmp_path) == 10
    assert checkpoints.damaged_checkpoints(tmp_path) == {}, "it counts for nothing now"
    damage(whole / name)
    assert checkpoints.last_complete_step(tmp_path) is None
    assert checkpoints.damaged_checkpoints(tmp_path) == {whole: says}


def test_a_checkpoint_without_a_record_does_not_count_after_one_that_has_it(tmp_path):
    for step in (5, 10):  # of an older release
        save_checkpoint(tmp_path, step)
    assert checkpoints.last_complete_step(tmp_path) == 10
    save_recorded(tmp_path, 20)
    save_checkpoint(tmp_path, 30)  # the machine died before its record was written
    assert checkpoints.finished_steps(tmp_path) == [20, 10, 5]
    assert checkpoints.repair_tracker(tmp_path) == 20
    with checkpoints.recording_files(checkpoints.step_folder(tmp_path, 30)):
        (tmp_path / TRACKER).write_text("30")
    assert checkpoints.last_complete_step(tmp_path) == 30


def test_the_disk_has_a_checkpoint_before_another_is_removed(tmp_path, monkeypatch):
    synced, sync = set(), os.fsync

    def note(descriptor):
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    folder = save_recorded(tmp_path, 10)
    assert {tmp_path, folder, folder / "seele", folder / "actor"} <= synced
    assert {folder / "data.pt", folder / "actor" / "rank_0.pt"} <= synced


def test_a_checkpoint_that_is_written_again_has_no_record_meanwhile(tmp_path):
    folder = save_recorded(tmp_path, 10)
    with checkpoints.recording_files(folder):
        (folder / "actor" / "rank_0.pt").write_bytes(b"other weights")
        assert checkpoints.damage_of(folder) == ""
    assert checkpoints.damage_of(folder) == ""
    (folder / "actor" / "rank_0.pt").write_bytes(b"weights")
    assert checkpoints.damage_of(folder) == "actor/rank_0.pt has 7 of 13 bytes"


def test_a_removal_that_is_killed_leaves_no_checkpoint_that_is_taken_for_complete(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, 10)
    save_recorded(tmp_path, 20)
    with monkeypatch.context() as killed:
        killed.setattr("shutil.rmtree", lambda folder, ignore_errors: None)
        checkpoints.drop_later_checkpoints(tmp_path, None)
    assert checkpoints.saved_steps(tmp_path) == [10, 20]
    assert checkpoints.repair_tracker(tmp_path) is None
    assert start_of(tmp_path) is None
    assert checkpoints.saved_steps(tmp_path) == [], "they would lie there for ever"


def test_a_tracker_of_nothing_is_removed(tmp_path):
    (tmp_path / TRACKER).write_text("")
    assert checkpoints.repair_tracker(tmp_path) is None
    assert not (tmp_path / TRACKER).exists()


def test_old_checkpoints_go_and_the_newest_stay(tmp_path):
    for step in (5, 10, 100):
        save_checkpoint(tmp_path, step)
    checkpoints.drop_old_checkpoints(tmp_path, newest=100, keep=2)
    assert checkpoints.saved_steps(tmp_path) == [10, 100]


def test_checkpoints_that_only_their_age_caused_go_once_there_is_a_newer_one(tmp_path):
    for step in (4, 7, 8, 9, 11):
        save_checkpoint(tmp_path, step)
    for step in (7, 9, 11):
        checkpoints.mark_passing(checkpoints.step_folder(tmp_path, step))
    checkpoints.drop_passing_checkpoints(tmp_path, newest=9)
    assert checkpoints.saved_steps(tmp_path) == [4, 8, 9, 11]
    checkpoints.drop_passing_checkpoints(tmp_path, newest=11)
    assert checkpoints.saved_steps(tmp_path) == [4, 8, 11]


def test_what_a_kill_left_of_a_later_checkpoint_never_displaces_a_complete_one(tmp_path):
    for step in (5, 10):
        save_checkpoint(tmp_path, step)
    save_checkpoint(tmp_path, 20, complete=False)
    checkpoints.drop_old_checkpoints(tmp_path, newest=10, keep=1)
    assert checkpoints.last_complete_step(tmp_path) == 10
    assert (checkpoints.step_folder(tmp_path, 10) / "data.pt").exists()


def test_what_a_kill_left_of_an_earlier_checkpoint_is_not_one_of_those_kept(tmp_path):
    save_checkpoint(tmp_path, 7, complete=False)
    for step in (5, 10, 15):
        save_checkpoint(tmp_path, step)
    checkpoints.drop_old_checkpoints(tmp_path, newest=15, keep=2)
    assert checkpoints.saved_steps(tmp_path) == [10, 15]


def test_a_start_removes_what_kills_left_of_checkpoints(tmp_path):
    for step in (5, 10):
        save_checkpoint(tmp_path, step)
    for step in (7, 8, 9, 13):
        save_checkpoint(tmp_path, step, complete=False)
    (checkpoints.step_folder(tmp_path, 8) / checkpoints.FILES).write_text("{}")  # it was damaged later
    assert start_of(tmp_path, model=tmp_path / "global_step_9" / "actor") == 10
    assert checkpoints.saved_steps(tmp_path) == [5, 8, 9, 10]


def test_equal_states_are_equal_bytes(tmp_path):
    for name, state in {"a": {"x": 1, "y": [0.1]}, "b": {"y": [0.1], "x": 1}}.items():
        checkpoints.save_part(tmp_path / name, "controller", state)
    first, second = ((tmp_path / name / "seele" / "controller.json").read_bytes() for name in "ab")
    assert first == second
    assert checkpoints.load_part(tmp_path / "a", "controller") == {"x": 1, "y": [0.1]}


def test_a_foreign_checkpoint_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(CheckpointError, match=r"no seele/controller.json.*resume_mode=disable"):
        checkpoints.load_part(tmp_path, "controller")


def steps_of(run):
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("damage", ['{"step": 1, "to', "[1]", '{"seed": 1}', "\0"])
def test_damage_within_a_runs_records_is_named(tmp_path, damage):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 0}}\n{damage}\n{{"step": 2}}\n')
    with pytest.raises(CheckpointError, match=r"metrics.jsonl: line 2 is damaged .*; remove the line"):
        RunLog(tmp_path).rewind(2)
    assert (tmp_path / "metrics.jsonl").read_text().endswith('{"step": 2}\n'), "nothing is lost"
    (tmp_path / "run_card.json").write_text(damage)
    if "seed" not in damage:
        with pytest.raises(CheckpointError, match=r"run_card.json: .*; remove it, or copy it again"):
            run_card.read_run_card(tmp_path)


def test_totals_run_on_over_steps(tmp_path):
    log = RunLog(tmp_path)
    log.append(0, {"val/accuracy/x": 0.1})
    log.append(1, {"tokens/generated": 5.0})
    assert log.append(2, {"tokens/generated": 7.0})["tokens/generated_total"] == 12.0


def test_resuming_takes_back_what_lies_after_the_checkpoint(tmp_path):
    log = RunLog(tmp_path)
    for step in range(1, 5):
        log.append(step, {"tokens/generated": 1.0})
        log.write_rollouts(step, [{"step": step}])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "tok')  # a kill in the middle of a line
    (tmp_path / "rollouts" / "step_4_copy.jsonl").touch()  # the user's own
    resumed = RunLog(tmp_path)
    resumed.rewind(2)
    assert steps_of(tmp_path) == [1, 2]
    left = sorted(path.name for path in (tmp_path / "rollouts").iterdir())
    assert left == ["step_1.jsonl", "step_2.jsonl", "step_4_copy.jsonl"]
    assert resumed.append(3, {"tokens/generated": 1.0})["tokens/generated_total"] == 3.0
    assert steps_of(tmp_path) == [1, 2, 3]


def test_a_line_that_a_kill_prevented_comes_from_the_checkpoint(tmp_path):
    log = RunLog(tmp_path)
    log.append(1, {"tokens/generated": 5.0})
    saved = {"accuracy/mean": 0.25, "tokens/generated": 7.0} | log.count({"tokens/generated": 7.0})
    checkpoints.save_part(tmp_path / "global_step_2", "metrics", saved)
    resumed = RunLog(tmp_path)
    line = resumed.rewind(2, checkpoints.load_part(tmp_path / "global_step_2", "metrics", otherwise={}))
    assert (line["accuracy/mean"], line["tokens/generated_total"]) == (0.25, 12.0)
    assert steps_of(tmp_path) == [1, 2]
    assert resumed.append(3, {"tokens/generated": 1.0})["tokens/generated_total"] == 13.0
    # Where the line was written, it has more than the checkpoint, and stays.
    again = RunLog(tmp_path)
    again.amend(2, {"val/accuracy/x": 0.5})
    assert again.rewind(2, saved)["val/accuracy/x"] == 0.5
    assert RunLog(tmp_path).rewind(4, checkpoints.load_part(tmp_path, "metrics", otherwise={})) == {}
    assert steps_of(tmp_path) == [1, 2]


def budget_of(tokens):
    return OmegaConf.create({"seele": {"max_generated_tokens": tokens}})


def test_the_step_after_the_one_that_reached_a_budget_is_the_last_after_a_restart_too(tmp_path):
    log = RunLog(tmp_path)
    for step in (1, 2, 3):
        log.append(step, {"tokens/generated": 5.0})
    resumed = RunLog(tmp_path)
    resumed.rewind(3)
    for each in (log, resumed):
        ends = [final_step(budget_of(tokens), each.generated, total_steps=9) for tokens in (5, 6, 15, 16)]
        assert ends == [2, 3, 4, 9]
    assert final_step(budget_of(None), log.generated, total_steps=9) == 9
    assert final_step(budget_of(5), log.generated, total_steps=1) == 1


def test_a_new_start_leaves_nothing_of_the_old_run_that_could_be_taken_for_its_own(tmp_path):
    for step in (2, 4):
        checkpoints.save_part(checkpoints.step_folder(tmp_path, step), "carried", [])
    (tmp_path / "merged").mkdir()
    (tmp_path / TRACKER).write_text("4")
    (tmp_path / "resolved.yaml").touch()
    with pytest.raises(ConfigError, match=r"merged, which the run starts from, is one of them"):
        start_of(tmp_path, "disable", model=tmp_path / "merged")
    assert checkpoints.last_complete_step(tmp_path) == 4
    start_of(tmp_path, "disable", model=tmp_path / "sft" / "merged")
    assert [path.name for path in tmp_path.iterdir()] == ["resolved.yaml"]


def start_of(run, mode="auto", path=None, model="base"):
    trainer = {"default_local_dir": str(run), "resume_mode": mode, "resume_from_path": path and str(path)}
    actor = {"model": {"path": str(model)}}
    return prepare_start(OmegaConf.create({"trainer": trainer, "actor_rollout_ref": actor}))


def test_going_back_to_a_checkpoint_removes_what_came_after_it(tmp_path):
    for step in (10, 15, 20):
        save_checkpoint(tmp_path, step)
    (tmp_path / "merged").mkdir()
    assert start_of(tmp_path) == 20
    assert start_of(tmp_path, "resume_path", tmp_path / "global_step_15") == 15
    assert checkpoints.saved_steps(tmp_path) == [10, 15] and not (tmp_path / "merged").exists()
    # Killed before it has saved anything: it goes on from there, not from step 20.
    assert start_of(tmp_path) == 15
    with pytest.raises(ConfigError, match=r"global_step_15/huggingface, which the run starts from"):
        later = tmp_path / "global_step_15" / "huggingface"
        start_of(tmp_path, "resume_path", tmp_path / "global_step_10", model=later)
    assert checkpoints.last_complete_step(tmp_path) == 15
    assert start_of(tmp_path, "disable") is None
    assert checkpoints.saved_steps(tmp_path) == []


def test_a_checkpoint_of_another_folder_gives_the_step_and_stays(tmp_path):
    save_checkpoint(tmp_path / "other", 10)
    save_checkpoint(tmp_path / "other", 20)
    assert start_of(tmp_path / "run", "resume_path", tmp_path / "other" / "global_step_10") == 10
    assert checkpoints.last_complete_step(tmp_path / "other") == 20


def test_a_folder_goes_on_with_its_own_run_only(tmp_path):
    base, run = tmp_path / "models" / "base", tmp_path / "run"
    base.mkdir(parents=True)

    def config(method="seele", seed=0, model=base, mode="auto"):
        trainer = {"default_local_dir": str(run), "resume_mode": mode}
        actor = {"model": {"path": str(model)}}
        seele = {"method": method, "seed": seed}
        return OmegaConf.create({"trainer": trainer, "actor_rollout_ref": actor, "seele": seele})

    run.mkdir()
    OmegaConf.save(config(), run / "resolved.yaml")
    (run / "metrics.jsonl").write_text('{"step": 0}\n')
    check_same_run(config("grpo"))  # nothing was trained
    (run / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1}\n')
    with pytest.raises(ConfigError, match="got 'grpo', but"):
        check_same_run(config("grpo"))  # its metrics would be written over
    (run / "metrics.jsonl").unlink()
    save_checkpoint(run, 10)
    check_same_run(config())
    check_same_run(config("grpo", mode="disable"))
    run_card.write_run_card(run, {"status": "finished"})
    check_not_finished(config())  # it has a checkpoint
    for other, said in (
        (config("grpo"), "seele.method: got 'grpo', but .* holds a run with 'seele'"),
        (config(seed=1), "seele.seed: got 1, .* with 0; set it to that, use another"),
        (config(model=tmp_path / "other" / "base"), r"actor_rollout_ref.model.path: got .*/other/base'"),
        (config(model="hub/larger"), "actor_rollout_ref.model.path: got 'hub/larger'"),
    ):
        with pytest.raises(ConfigError, match=said):
            check_same_run(other)
    (tmp_path / "models").rename(tmp_path / "other")
    check_same_run(config(model=tmp_path / "other" / "base"))
    (run / "resolved.yaml").unlink()
    check_same_run(config("grpo"))
    (run / "sft").mkdir()
    (run / "sft" / "metrics.jsonl").touch()
    check_same_run(config("sft_rl"))
    # Before anything is removed for a new start.
    with pytest.raises(ConfigError, match=r"/sft: the first stage of another method's run"):
        check_same_run(config("grpo", mode="disable"))


def test_a_finished_run_without_checkpoints_is_not_erased(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "check_run", lambda *_, **__: None)

    def check(mode="auto"):
        trainer = {"default_local_dir": str(tmp_path), "resume_mode": mode}
        stages.check_stages(OmegaConf.create({"trainer": trainer, "seele": {"method": "grpo"}}), [])

    log = RunLog(tmp_path)
    run_card.write_run_card(tmp_path, {"status": "finished"})
    log.append(0, {"val/accuracy/x": 0.5})
    check()  # it only validated
    for step in (1, 2):
        log.append(step, {})
    said = "holds a finished run of 2 steps without checkpoints, .*; use another folder, or start again with"
    for mode in ("auto", "resume_path"):  # a checkpoint of another folder's
        with pytest.raises(ConfigError, match=said):
            check(mode)
    check("disable")
    run_card.write_run_card(tmp_path, {"status": "failed"})
    check()
    # SIGTERM caused the only checkpoint of the finished run.
    run_card.write_run_card(tmp_path, {"status": "finished"})
    save_checkpoint(tmp_path, 1)
    with pytest.raises(
        ConfigError, match="holds a finished run of 2 steps whose last checkpoint is of step 1"
    ):
        check()
    check("resume_path")  # which goes back on purpose
    save_checkpoint(tmp_path, 2)
    check()


def test_a_validation_alone_removes_no_steps(tmp_path):
    def check(**changes):
        trainer = {"default_local_dir": str(tmp_path), "resume_mode": "auto", "val_only": True} | changes
        resume.check_validation_alone(OmegaConf.create({"trainer": trainer}))

    log = RunLog(tmp_path)
    check()
    for step in (1, 2, 3):
        log.append(step, {})
    with pytest.raises(ConfigError, match=r"trainer\.val_only: .* steps up to 3, and those after 0"):
        check()
    check(val_only=False)
    check(resume_mode="disable")
    save_checkpoint(tmp_path, 3)
    check()


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", ["auto", "disable", "resume_path"])
def test_a_run_that_is_refused_after_it_began_to_start_is_as_before(tmp_path, mode):
    log = RunLog(tmp_path)
    for step in (1, 2, 3, 4, 5):
        log.append(step, {"tokens/generated": 5.0})
        log.write_rollouts(step, [{"step": step}])
    for step in (2, 4):
        save_checkpoint(tmp_path, step)
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "weights").write_text("4")
    run_card.write_run_card(tmp_path, {"status": "finished"})
    (tmp_path / "resolved.yaml").write_text("before")
    before, path = contents(tmp_path), (mode == "resume_path" and str(tmp_path / "global_step_2")) or None
    trainer = {"default_local_dir": str(tmp_path), "resume_mode": mode, "resume_from_path": path}
    config = OmegaConf.create({"trainer": trainer, "actor_rollout_ref": {"model": {"path": "base"}}})

    def start():
        step = prepare_start(config)
        RunLog(tmp_path).rewind(-1 if step is None else step)
        (tmp_path / "resolved.yaml").write_text("after")
        (tmp_path / "too_long.json").write_text("{}")
        run_card.write_run_card(tmp_path, {"status": "running"})
        return step

    expected = {"auto": 4, "disable": None, "resume_path": 2}[mode]
    for refusal in (ConfigError("too few GPUs"), OSError("no space left on device")):
        with pytest.raises(type(refusal)), undo.kept_until_training(config):
            assert start() == expected
            raise refusal
        assert contents(tmp_path) == before
    # A fault is no refusal, and once training has begun nothing comes back.
    for error, begins in ((RuntimeError, False), (ConfigError, True)):
        with contextlib.suppress(error), undo.kept_until_training(config):
            assert start() == expected
            if begins:
                undo.let_go(tmp_path)
            raise error
        assert checkpoints.saved_steps(tmp_path) == {"auto": [2, 4], "disable": [], "resume_path": [2]}[mode]
        assert (tmp_path / "resolved.yaml").read_text() == "after"
        assert not (tmp_path / undo.KEPT).exists()


def test_a_refused_start_from_another_runs_checkpoint_keeps_all_rollouts(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    for step in (1, 2):
        RunLog(run).append(step, {})
        RunLog(run).write_rollouts(step, [{"step": step}])
    save_checkpoint(other, 50)
    before = contents(run)
    trainer = {"default_local_dir": str(run), "resume_mode": "resume_path"}
    config = OmegaConf.create({"trainer": trainer | {"resume_from_path": str(other / "global_step_50")}})
    with pytest.raises(ConfigError), undo.kept_until_training(config):
        RunLog(run).rewind(-1)
        assert not [*run.glob("rollouts/*")]
        raise ConfigError("too few GPUs")
    assert contents(run) == before


def test_a_refused_start_that_is_interrupted_as_it_puts_things_back_loses_nothing(tmp_path, monkeypatch):
    for step in (2, 4):
        save_checkpoint(tmp_path, step)
    before = contents(tmp_path)
    trainer = {"default_local_dir": str(tmp_path), "resume_mode": "disable", "resume_from_path": None}
    config = OmegaConf.create({"trainer": trainer, "actor_rollout_ref": {"model": {"path": "base"}}})
    replace, moved = Path.replace, []

    def interrupted(path, target):
        moved.append(path)
        if len(moved) > 1:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), undo.kept_until_training(config):
        patch.setattr(Path, "replace", interrupted)
        raise ConfigError("too few GPUs")
    assert len(moved) == 2 and contents(tmp_path) != before
    # Also where the next start is refused before it finds anything.
    with pytest.raises(ConfigError), undo.kept_until_training(config):
        assert prepare_start(config) is None
        raise ConfigError("too few GPUs")
    assert contents(tmp_path) == before


def test_a_first_start_that_is_refused_leaves_its_card(tmp_path):
    trainer = {"default_local_dir": str(tmp_path), "resume_mode": "auto", "resume_from_path": None}
    with pytest.raises(ConfigError), undo.kept_until_training(OmegaConf.create({"trainer": trainer})):
        run_card.write_run_card(tmp_path, {"status": "failed"})
        raise ConfigError("no room")
    assert run_card.read_run_card(tmp_path) == {"status": "failed"}


def test_a_file_system_without_locks_is_said_to_be_one(tmp_path, monkeypatch, capsys):
    def flock(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with only_run_in(tmp_path):
        assert capsys.readouterr().err == ""
    monkeypatch.setattr(fcntl, "flock", flock)
    with only_run_in(tmp_path):
        said = f"the file system of {tmp_path} has no locks (No locks available), so a second run there would"
        assert said in capsys.readouterr().err


def test_a_folder_takes_one_run_until_its_process_ends(tmp_path):
    code = f"""
import sys, time
from pathlib import Path
from seele_verl.runs.stages import only_run_in
from seele_verl.runs.terminal import terminal_apart_from
with only_run_in(Path({str(tmp_path)!r})):
    print("locked", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        said = rf"process {process.pid} on .* trains in {tmp_path}; wait for its end, or use another"
        with pytest.raises(ConfigError, match=said), only_run_in(tmp_path):
            raise AssertionError("two runs in a folder")
        process.kill()
    with only_run_in(tmp_path):
        # What the run starts does not keep its folder, whatever becomes of the run.
        command = ["ls", "-l", "/proc/self/fd"]
        opened = subprocess.run(command, close_fds=False, capture_output=True, text=True)
        assert "->" in opened.stdout and ".lock" not in opened.stdout


def test_a_step_is_logged_once(tmp_path):
    log = RunLog(tmp_path)
    log.append(0, {"a": 1.0})
    log.append(0, {"a": 2.0})
    assert steps_of(tmp_path) == [0]


def test_the_cost_of_a_run_is_that_of_its_last_step(tmp_path):
    log = RunLog(tmp_path)
    for step in (1, 2):
        log.append(step, {"tokens/generated": 5.0, "flops": 100.0})
    cost = run_card.describe_cost(tmp_path, 7)
    assert cost["tokens"]["generated"] == 10.0 and cost["tokens"]["trained"] == 0.0
    assert (cost["parameters"], cost["flops"]) == (7, 200.0)
    # A kill in the middle of the next step's line.
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"flops": 100.0, "flops_to')
    assert run_card.describe_cost(tmp_path, 7) == cost


OWN_CODE = """
from transformers import Qwen2Config, Qwen2ForCausalLM


class OwnConfig(Qwen2Config):
    model_type = "own"


class OwnModel(Qwen2ForCausalLM):
    config_class = OwnConfig
"""


def test_parameters_of_a_model_with_code_are_counted_where_its_code_is_trusted(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    settings = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Qwen2Config(vocab_size=32, num_key_value_heads=2, **settings)
    config.save_pretrained(tmp_path / "own")
    written = json.loads((tmp_path / "own" / "config.json").read_text())
    code = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (tmp_path / "own" / "config.json").write_text(
        json.dumps(written | {"model_type": "own", "auto_map": code})
    )
    (tmp_path / "own" / "own.py").write_text(OWN_CODE)
    config.save_pretrained(tmp_path / "plain")
    plain = run_card.count_parameters(str(tmp_path / "plain"))
    assert run_card.count_parameters(str(tmp_path / "own"), trust_remote_code=True) == plain
    with pytest.raises(ValueError, match="trust_remote_code"):
        run_card.count_parameters(str(tmp_path / "own"))


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_are_counted_without_the_weights_too(tmp_path, tied):
    transformers = pytest.importorskip("transformers")
    settings = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Qwen2Config(
        vocab_size=32, num_key_value_heads=2, tie_word_embeddings=tied, **settings
    )
    config.save_pretrained(tmp_path / "configuration")
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    # As in Mistral's folders, which hold the weights twice.
    shutil.copy(tmp_path / "model" / "model.safetensors", tmp_path / "model" / "consolidated.safetensors")
    for name in ("model", "configuration"):
        (tmp_path / name / "pytorch_model.bin").touch()
    with_weights, without = (
        run_card.count_parameters(str(tmp_path / name)) for name in ("model", "configuration")
    )
    # Attention, its biases, MLP, three norms, embeddings, and the head where it is not the embeddings.
    assert with_weights == without == 4 * 64 + 3 * 8 + 3 * 8 * 16 + 3 * 8 + 32 * 8 * (1 if tied else 2)


def test_the_card_names_versions_hardware_and_job(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert run_card.describe_environment()["job"] is None
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    card = run_card.describe_environment()
    run_card.write_run_card(tmp_path, card)
    written = json.loads((tmp_path / "run_card.json").read_text())
    assert written["versions"]["seele"] and written["versions"]["python"] and written["job"] == "41"
    assert written["hardware"]["cpu_cores"] >= 1 and written["hardware"]["memory_gib"] > 0


STEP = {
    "step": 12,
    "accuracy/round_0": 0.781,
    "accuracy/round_1": 0.5,
    "hint_ratio/mean": 0.41,
    "group/on_policy": 7.0,
    "group/off_policy": 1.0,
    "group/hinted": 0.0,
    "tokens/generated": 6000.0,
    "timing_s/gen": 2.0,
    "timing_s/step": 6.0,
}


def test_a_step_as_a_person_reads_it():
    line = format_step(STEP | {"val/accuracy/chains/heldout": 0.3125}, total_steps=40)
    assert line == (
        "step   12/40 | rounds 0.78 0.50 | hint 0.41 | 8 rollouts a problem, 0 hinted, 1 off-policy | "
        "3,000 tok/s | 6.0 s/step | 2:48 left | un-hinted heldout 31.2%"
    )


def test_hours_are_told_from_minutes():
    assert [clock(seconds) for seconds in (9, 70, 3599, 3600, 108_001)] == [
        "0:09", "1:10", "59:59", "1:00:00", "30:00:01",
    ]  # fmt: skip


def test_a_step_whose_times_were_lost_is_shown_without_them():
    line = {name: value for name, value in STEP.items() if not name.startswith("timing_s/")}
    assert format_step(line, 40) == (
        "step   12/40 | rounds 0.78 0.50 | hint 0.41 | 8 rollouts a problem, 0 hinted, 1 off-policy"
    )


@pytest.mark.parametrize(("steps", "planned"), [(30, 30), (None, 2 * 5)])
def test_without_a_number_of_steps_it_follows_from_the_epochs(steps, planned):
    trainer = {"total_training_steps": steps, "total_epochs": 2}
    config = OmegaConf.create({"trainer": trainer, "data": {"train_batch_size": 4}})
    assert planned_steps(config, 23) == planned


@pytest.mark.parametrize(
    ("step", "total", "left"),
    [
        (2, 12_000, "0:24 left"),  # 18,000 more are three steps, and one follows
        (4, 30_000, "0:06 left"),  # reached in this step
        (5, 36_000, "0:00 left"),  # reached in the step before
        (38, 12_000, "0:12 left"),  # the steps end first
    ],
)
def test_the_time_left_ends_with_the_tokens_where_they_end_first(step, total, left):
    row = STEP | {"step": step, "tokens/generated_total": float(total)}
    assert left in format_step(row, 40, max_generated_tokens=30_000)
    cells = [*draw_board([row], 40, max_generated_tokens=30_000).columns[1].cells]
    assert left.removesuffix(" left") in cells
    assert "off-policy" not in format_step(row | {"group/off_policy": 0.0}, 40)


def test_a_validation_before_training_has_no_rounds():
    assert (
        format_step({"step": 0, "val/accuracy/chains/heldout": 0.08}, 40)
        == "step    0/40 | un-hinted heldout 8.0%"
    )


def test_progress_follows_what_is_logged_and_skips_a_half_line(tmp_path, capfd):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(STEP) + '\n{"step": 13')
    with follow_metrics(tmp_path, total_steps=40, after_step=-1, terminal=sys.stdout):
        pass
    assert capfd.readouterr().out.count("step   12/40") == 1
    with follow_metrics(tmp_path, total_steps=40, after_step=12, terminal=sys.stdout):
        pass
    assert capfd.readouterr().out == ""
    log = RunLog(tmp_path)
    for _ in range(2):  # a resumed run makes up for a validation
        with follow_metrics(tmp_path, total_steps=40, after_step=12, terminal=sys.stdout):
            log.amend(12, {"val/accuracy/x/heldout": 0.5})
    said = capfd.readouterr().out
    assert said.count("step   12/40") == said.count("heldout 50.0%") == 1
    log.rewind(12)
    with follow_metrics(tmp_path, total_steps=40, after_step=-1, terminal=sys.stdout):
        log.append(13, STEP | {"step": 13})
        log.rewind(13)  # another file takes its place
        log.append(14, STEP | {"step": 14})
    said = capfd.readouterr().out.splitlines()
    assert [line[:12] for line in said] == ["step   12/40", "step   13/40", "step   14/40"]


def test_a_warning_is_told_while_it_is_followed_and_not_again(tmp_path, capfd):
    log = RunLog(tmp_path)
    log.warn("")
    assert not (tmp_path / "logs").exists()
    log.warn("before\n")
    with follow_metrics(tmp_path, total_steps=40, after_step=-1, terminal=sys.stdout):
        log.warn("most responses: äöü\n- wait\n")
    assert capfd.readouterr().out == "most responses: äöü\n- wait\n"
    with follow_metrics(tmp_path, total_steps=40, after_step=-1, terminal=sys.stdout):
        pass
    assert capfd.readouterr().out == ""
    assert (tmp_path / "logs" / "warnings.log").read_text() == "before\nmost responses: äöü\n- wait\n"


def test_a_terminal_that_is_watched_shows_the_course_below_the_lines(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    log = RunLog(tmp_path)
    for step in range(1, 4):
        log.append(
            step, STEP | {"step": step, "hint_ratio/mean": 1 - step / 4, "val/accuracy/x/heldout": 0.5}
        )
    master, slave = pty.openpty()
    pieces = []

    def drain() -> None:
        # A terminal holds 4 KiB, and a writer of more waits; its end is an error.
        with contextlib.suppress(OSError):
            while piece := os.read(master, 4096):
                pieces.append(piece)

    reader = threading.Thread(target=drain)
    reader.start()
    with open(slave, "w") as screen, follow_metrics(tmp_path, total_steps=4, after_step=1, terminal=screen):
        log.append(4, STEP | {"step": 4, "hint_ratio/mean": 0.0})
        log.amend(4, {"val/accuracy/x/heldout": 1.0})
    reader.join()
    os.close(master)
    shown = b"".join(pieces).decode()
    assert [shown.count(f"step    {step}/4") for step in range(1, 5)] == [0, 1, 1, 1]
    table = shown.rpartition("step    4/4")[2]
    assert re.search(r"hint ratio +0\.00 +▆▅▃▁", table)
    assert re.search(r"un-hinted, x/heldout +1\.00 +▅▅▅█", table)
    assert re.search(r"step +4 of 4", table) and "time left" in table


def test_the_course_of_a_run_is_drawn_from_what_it_logs():
    assert sparkline([0.0, 0.5, 1.0, 2.0, -1.0]) == "▁▅██▁" and sparkline([0.0], most=0.0) == "▁"
    assert sparkline([0.0, float("nan"), float("inf"), 1.0]) == "▁  █"
    columns = draw_board([{"step": 2, "accuracy/round_0": 0.5, "actor/entropy": 1.0}], 4).columns
    assert [*columns[0].cells] == ["step", "accuracy, first round"]
    assert [*draw_board([], 4).columns[1].cells] == ["0 of 4"]


def test_the_course_of_a_supervised_run_is_its_loss_and_its_speed():
    lines = [
        {"actor/sft_loss": 2.0, "tokens/trained": 3000.0},
        {"actor/sft_loss": 0.5, "tokens/trained": 6000.0},
    ]
    lines = [line | {"step": step, "timing_s/step": 3.0} for step, line in enumerate(lines, start=1)]
    columns = draw_board([drawn_of(line | {"lr": 1.0}) for line in lines], 4).columns
    assert [*columns[0].cells] == ["step", "loss", "time left", "tokens a second"]
    assert [*columns[1].cells] == ["2 of 4", "0.500", "0:06", "2,000"]
    assert columns[2]._cells[1:] == ["█▃", "", "▅█"]


def test_a_run_outlives_its_terminal(tmp_path):
    terminal, its_end = pty.openpty()
    program = (
        "import sys; from pathlib import Path\n"
        "from seele_verl.runs.terminal import outlive_terminal, terminal_apart_from\n"
        "outlive_terminal(); print('begins'); sys.stdin.read()\n"
        "with terminal_apart_from(Path(sys.argv[1])) as terminal:\n"
        "    print('step 1', file=terminal); print('chatter')\n"
        "print('over'); sys.stderr.write('over\\n'); sys.exit(75)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "train.log")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=its_end, stderr=its_end)
    os.close(its_end)
    assert os.read(terminal, 100).split() == [b"begins"]
    os.close(terminal)
    process.communicate()
    assert process.returncode == 75 and (tmp_path / "train.log").read_text() == "chatter\n"


def test_chatter_goes_to_the_log_and_progress_to_the_terminal(tmp_path, capfd):
    import os

    with terminal_apart_from(tmp_path / "logs" / "train.log") as terminal:
        os.write(1, b"chatter\n")
        terminal.write("progress\n")
    print("after")  # noqa: T201
    assert (tmp_path / "logs" / "train.log").read_text() == "chatter\n"
    assert capfd.readouterr().out == "progress\nafter\n"


WANDB_NAMES = ("DIR", "MODE", "API_KEY", "BASE_URL", "RUN_ID", "RESUME")


def test_loggers_write_into_the_folder_of_each_stage_and_workers_are_told(tmp_path, monkeypatch):
    for name in ("TENSORBOARD_DIR", *(f"WANDB_{name}" for name in WANDB_NAMES)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    runs = set()
    for stage in (tmp_path / "sft", tmp_path):
        variables = tracking_variables(stage, resumes=True)  # as from another folder's checkpoint
        runs.add(variables["WANDB_RUN_ID"])
        expected = {
            "TENSORBOARD_DIR": f"{stage}/tensorboard",
            "WANDB_DIR": str(stage),
            "WANDB_RUN_ID": variables["WANDB_RUN_ID"],
            "WANDB_RESUME": "allow",
            "WANDB_MODE": "offline",
        }
        assert variables == expected == tracking_variables(stage, resumes=True)
        with tracking(variables):
            assert {name: os.environ[name] for name in expected} == expected
        assert not expected.keys() & os.environ.keys()
    runs.add(tracking_variables(tmp_path, resumes=False)["WANDB_RUN_ID"])
    assert len(runs) == 3
    # What `wandb login` writes.
    for host, mode in (("elsewhere.org", "offline"), ("api.wandb.ai", None)):
        (tmp_path / "netrc").write_text(f"machine {host} login user password secret\n")
        assert tracking_variables(tmp_path, resumes=True).get("WANDB_MODE") == mode
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("TENSORBOARD_DIR", "/elsewhere")
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    variables = tracking_variables(tmp_path, resumes=True)
    assert variables == {
        "TENSORBOARD_DIR": "/elsewhere",
        "WANDB_DIR": str(tmp_path),
        "WANDB_RUN_ID": "mine",
        "WANDB_RESUME": "allow",
        "WANDB_MODE": "disabled",
    }
    with tracking(variables):
        pass
    assert os.environ["TENSORBOARD_DIR"] == "/elsewhere"


def test_merging_without_a_checkpoint_names_the_steps_there_are(tmp_path):
    with pytest.raises(CheckpointError, match="no complete checkpoint; no step has one"):
        merge.merge_checkpoint(tmp_path)
    for ask in (merge.merge_checkpoint, merge.complete_steps):
        with pytest.raises(
            CheckpointError, match="nowhere: no such folder; name the folder of a run, such as"
        ):
            ask(tmp_path / "nowhere")
    save_checkpoint(tmp_path, 10)
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 7; steps with a checkpoint are \[10\]"):
        merge.merge_checkpoint(tmp_path, 7)


@pytest.fixture
def merger(monkeypatch):
    """Stands in for verl's; the checkpoints that it has merged."""
    merged = []

    def write_model(actor, target):
        with (target.parent / ".merged.lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        merged.append(actor)
        target.mkdir()
        (target / "config.json").touch()

    monkeypatch.setattr(merge, "_run_merger", write_model)
    return merged


def test_merging_twice_does_the_work_once(tmp_path, merger):
    save_checkpoint(tmp_path, 10)
    assert merge.merge_checkpoint(tmp_path) == merge.merge_checkpoint(tmp_path) == tmp_path / "merged"
    assert merger == [tmp_path / "global_step_10" / "actor"]
    assert (tmp_path / "merged" / "config.json").exists()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_that_was_trained_again_is_merged_again(tmp_path, merger, hours):
    save_checkpoint(tmp_path, 10)
    merge.merge_checkpoint(tmp_path)
    shards = tmp_path / "global_step_10" / "actor" / "model_world_size_1_rank_0.pt"
    shards.touch()
    merge.merge_checkpoint(tmp_path)
    then_ns = shards.stat().st_mtime_ns + hours * 3_600 * 10**9
    os.utime(shards, ns=(then_ns, then_ns))
    for _ in range(2):
        merge.merge_checkpoint(tmp_path)
    assert len(merger) == 3
    assert read_step(tmp_path / "merged" / STEP_FILE) == 10


def test_a_merged_model_stands_for_a_checkpoint_that_was_removed(tmp_path, merger):
    for step in (10, 20):
        save_checkpoint(tmp_path, step)
    merge.merge_checkpoint(tmp_path, 20)
    checkpoints.drop_old_checkpoints(tmp_path, newest=20, keep=1)
    shutil.rmtree(tmp_path / "global_step_20")
    assert merge.merge_checkpoint(tmp_path, 20) == tmp_path / "merged"
    with pytest.raises(CheckpointError, match="no checkpoint of step 10"):
        merge.merge_checkpoint(tmp_path, 10)


def test_a_merge_waits_for_another_process_and_takes_its_model(tmp_path, merger, monkeypatch):
    save_checkpoint(tmp_path, 10)
    lock = fcntl.flock

    def wait(file, operation):
        monkeypatch.setattr(fcntl, "flock", lock)
        merge.merge_checkpoint(tmp_path)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", wait)
    merge.merge_checkpoint(tmp_path)
    assert len(merger) == 1


def test_merge_refuses_a_checkpoint_that_is_not_whole(tmp_path, merger, capsys):
    save_recorded(tmp_path, 20)
    save_checkpoint(tmp_path, 10)
    save_checkpoint(tmp_path, 30, complete=False)
    (tmp_path / TRACKER).write_text("20")
    shard = tmp_path / "global_step_10" / "actor" / "model.pt"
    with checkpoints.recording_files(tmp_path / "global_step_10"):
        shard.touch()
    shard.unlink()
    for step, reason in (10, "actor/model.pt is missing"), (30, "the checkpoint is incomplete"):
        with pytest.raises(CheckpointError, match=f"global_step_{step}: {reason}; merge another step"):
            merge.merge_checkpoint(tmp_path, step)
    merge.main([str(tmp_path), "--list"])
    assert (capsys.readouterr().out, merger) == ("20\n", [])


@pytest.mark.parametrize("step", ["ten", "²"])
def test_merge_refuses_a_step_that_is_no_number(tmp_path, capsys, step):
    with pytest.raises(SystemExit, match=r"^2$"):
        merge.main([str(tmp_path), "--step", step])
    assert f"expected a step's number or 'last', got '{step}'" in capsys.readouterr().err
