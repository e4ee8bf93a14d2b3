"""`tools/check_commit_message.py`: the hook that a commit's subject passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.check_commit_message import LONGEST, problems_of, subject_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "message",
    [
        "sinks: publish a batch once",
        "runtime/driver: pass the epoch on\n\nA zombie reads it.\n",
        "state, operators: address rows by hash",
        "docs: focus the first page on users",
        "cli: feed `run` from a file",
        "# a comment of git\n\ntests: draw cases\n# more\n",
        "docs: add a page\n\nWhy.\n# ------------------------ >8 ------------------------\ndiff a; b.",
        "Merge branch 'main' into words",
        'Revert "sinks: publish a batch once"',
        "fixup! sinks: publish a batch once",
        "x: " + "a" * (LONGEST - 3),
    ],
)
def test_a_good_message_passes(message):
    """A scope, an imperative, one line; what git writes itself passes too."""
    assert list(problems_of(message)) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Publish a batch once", "begins with a scope"),
        ("Sinks: publish a batch once", "begins with a scope"),
        ("", "begins with a scope"),
        ("sinks:publish", "begins with a scope"),
        ("x: " + "a" * (LONGEST - 2), "73 characters"),
        ("sinks: publish once; state: let go", "one change"),
        ("sinks: publish a batch once.", "no full stop"),
        ("sinks: publish a batch\nonce", "one line"),
        ("sinks: published a batch", "not with 'published'"),
        ("sinks: publishing a batch", "not with 'publishing'"),
        ("sinks: publishes a batch", "not with 'publishes'"),
        ("sinks: the batch is published", "not with 'the'"),
        ("docs: what a batch is", "not with 'what'"),
    ],
)
def test_what_is_wrong_is_said(message, problem):
    """One problem each, with what to write instead."""
    (sentence,) = problems_of(message)
    assert problem in sentence


def test_comments_and_the_diff_of_verbose_are_no_part_of_a_message():
    """Git strips them after the hook has run."""
    assert subject_of("# c\n\na: b c\n# d\n\nwhy\n# ------------------------ >8 ---\nx") == ("a: b c", "")
    assert subject_of("a: b\nc\n") == ("a: b", "c")


def test_the_recent_history_keeps_to_it():
    """The rule is one that people can follow: the newest commits of this repository do."""
    log = subprocess.run(
        ["git", "log", "--no-merges", "-20", "--format=%s"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if log.returncode:
        pytest.skip("no git history here; runs in every clone")
    assert [subject for subject in log.stdout.splitlines() if len(subject) > LONGEST or ": " not in subject] == []


def test_git_runs_it_as_a_hook(tmp_path):
    """As pre-commit calls it: with the file of the message, and its exit code stops the commit."""
    for message, code in (("sinks: publish a batch once\n", 0), ("Published\n", 1)):
        (tmp_path / "COMMIT_EDITMSG").write_text(message)
        command = [sys.executable, "-m", "tools.check_commit_message", str(tmp_path / "COMMIT_EDITMSG")]
        ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        assert (ran.returncode, "commit message:" in ran.stderr) == (code, bool(code))


def test_pre_commit_installs_it():
    """`pre-commit install` alone installs both kinds of hooks."""
    config = (ROOT / ".pre-commit-config.yaml").read_text()
    assert "default_install_hook_types: [pre-commit, commit-msg]" in config
    assert "stages: [commit-msg]" in config
