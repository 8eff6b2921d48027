"""Which checkpoints of a run can be merged. Merging itself is in tests/integration."""

import pytest

pytest.importorskip("omegaconf", reason="omegaconf is not installed")

from seele.errors import CheckpointError
from seele_verl.merge import complete_steps, main


def checkpoints(run, *steps, tracked):
    for step in steps:
        (run / f"global_step_{step}" / "actor").mkdir(parents=True)
    (run / "latest_checkpointed_iteration.txt").write_text(str(tracked))
    return run


def test_steps_up_to_the_last_complete_one_can_be_merged(tmp_path, capsys):
    # A run that was killed while it saved step 30.
    run = checkpoints(tmp_path, 20, 10, 30, tracked=20)
    # An earlier one whose weights were removed.
    (run / "global_step_15").mkdir()
    assert complete_steps(run) == [10, 20]
    main([str(run), "--list"])
    assert capsys.readouterr().out == "10 20\n"


def test_a_run_without_checkpoints_is_refused(tmp_path, capsys):
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        complete_steps(tmp_path)
    with pytest.raises(SystemExit, match=r"^2$"):
        main([str(tmp_path), "--list"])
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "no complete checkpoint" in error
