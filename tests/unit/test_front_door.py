"""``seele train`` and its like: found by entry point, with their own arguments, status and errors."""

import subprocess
import sys

import pytest

from seele.cli import engines
from seele.cli.main import main
from seele.errors import DependencyError

STAND_IN = """
import sys
def command():
    import mine
    print(sys.argv, mine.NAME)
    if "--raise" in sys.argv:
        raise OSError("mine")
    return 3
"""


@pytest.fixture
def seele(tmp_path):
    """Runs ``seele`` in a folder with a module ``mine``, where ``seele train`` is a stand-in."""
    here, site = tmp_path / "here", tmp_path / "site"
    here.mkdir()
    (here / "mine.py").write_text("NAME = 'a module of the current folder'\n")
    # Nearer on the path than the installed distribution of that name, so its entry points count.
    described = site / "seele-0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: seele\nVersion: 0\n")
    (described / "entry_points.txt").write_text(
        f"[{engines.GROUP}]\ntrain = stand_in:command\neval = absent_library:command\n"
    )
    (site / "stand_in.py").write_text(STAND_IN)
    # As the console script: the first entry of the path is its own folder, and not the current one.
    start = f"import sys; sys.path[0] = {str(site)!r}; from seele.cli.main import main; main()"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", start, *arguments], cwd=here, capture_output=True, text=True
        )

    return run


def test_a_command_gets_its_arguments_untouched_and_finds_modules_of_the_current_folder(seele):
    arguments = ["a=1", "--cfg", "job", "--", "+b=[1, 2]", "--help"]
    ended = seele("train", *arguments)
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout == f"{['seele train', *arguments]} a module of the current folder\n"


def test_a_commands_errors_are_its_own(seele):
    ended = seele("train", "--raise")
    assert ended.returncode == 1 and ended.stderr.startswith("Traceback")


def test_a_command_whose_library_is_missing_says_what_to_install(seele):
    ended = seele("eval")
    assert ended.returncode == 2
    assert ended.stderr.startswith("DependencyError: seele eval: absent_library is missing. This command")
    assert "scripts/setup.sh" in ended.stderr and ended.stderr.count("\n") == 1


def test_a_command_of_a_package_that_is_not_installed_is_refused(monkeypatch):
    monkeypatch.setattr(engines, "GROUP", "seele.absent")
    with pytest.raises(DependencyError, match=r"^seele train: no installed package has the entry point"):
        engines.find_engine_command("train")


def test_help_lists_every_command_with_a_line(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    for name, text in engines.HELP.items():
        assert f" {name} " in listed and text.split(":")[0] in " ".join(listed.replace("│", "").split())
