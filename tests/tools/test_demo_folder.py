"""A demo has its folder for itself, and ends by a signal as by Ctrl-C."""

from __future__ import annotations

import os
import signal

import pytest

from tools.demo_folder import empty, environment, run_in, scratch
from tools.demo_stream import DemoFailed


def test_the_exit_code_is_that_of_the_demo(tmp_path):
    """The folder is made, for nobody else."""
    folder = tmp_path / "demo"
    assert [run_in(folder, lambda _, code=code: code) for code in (0, 1)] == [0, 1]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_one_demo_at_a_time_runs_in_a_folder(tmp_path, capsys):
    """The second says so, and the first goes on."""
    assert run_in(tmp_path, lambda _: 5 + run_in(tmp_path, lambda _: 0)) == 6
    assert "another demo runs in" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_demo_with_130(tmp_path, number, capsys):
    """Afterwards signals are what they were."""
    before = signal.getsignal(number)
    assert run_in(tmp_path, lambda _: os.kill(os.getpid(), number)) == 130
    assert signal.getsignal(number) is before
    assert "nothing is left running" in capsys.readouterr().out


@pytest.mark.parametrize("failure", [DemoFailed("it [failed]"), OSError("it [failed]"), KeyError("it [failed]")])
def test_a_demo_that_fails_says_why(tmp_path, failure, capsys):
    """Exit code 1, and no traceback for what was expected."""

    def demo(_):
        raise failure

    assert run_in(tmp_path, demo, failures=(KeyError,)) == 1
    assert "it [failed]" in capsys.readouterr().out


def test_what_the_last_demo_left_is_removed(tmp_path):
    """But not the lock, nor what a link points to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    folder = tmp_path / "demo"
    (folder / "tables").mkdir(parents=True)
    for name in ("lock", "supervisor.log", "tables/part"):
        (folder / name).write_text("")
    (folder / "link").symlink_to(outside)
    empty(folder)
    assert [path.name for path in folder.iterdir()] == ["lock"]
    assert (outside / "kept").is_file()


def test_all_that_is_temporary_is_in_a_folder_that_goes(tmp_path, monkeypatch):
    """And the supervisor sees the demo's own checkpoints only."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    with scratch() as temporary:
        env = environment(temporary, tmp_path / "checkpoints")
        assert env["TMPDIR"] == env["SPARK_LOCAL_DIRS"] == str(temporary)
        assert env["SPARK_SUBMIT_OPTS"] == f"-Da=b -Djava.io.tmpdir={temporary}"
        assert env["PENSTOCK_CHECKPOINT_ROOT"] == str(tmp_path / "checkpoints")
        assert env["PATH"] == os.environ["PATH"]
    assert not temporary.exists()
