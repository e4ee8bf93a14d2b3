"""`tools/prerequisites.py`: what a machine lacks is said in one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.prerequisites import venv_trouble

ROOT = Path(__file__).resolve().parents[2]


def test_a_python_without_venv_is_named_with_what_to_install():
    """Debian's Python has its venv module in a package of its own."""
    assert venv_trouble(has_ensurepip=True) is None
    assert "python{}.{}-venv".format(*sys.version_info) in venv_trouble(has_ensurepip=False)


def make_setup(*, python, path):
    """Run `make setup` with nothing else in its environment."""
    command = [shutil.which("make"), "-f", str(ROOT / "Makefile"), "setup", f"PYTHON={python}"]
    return subprocess.run(command, cwd=ROOT, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


def test_make_ends_in_one_line_that_names_java_when_there_is_none(tmp_path):
    """Without Java, `make setup` prints one line, ends badly, and installs nothing."""
    ran = make_setup(python=sys.executable, path=tmp_path)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)
    assert "Java 17 or newer is needed and PATH has none" in ran.stderr


def test_make_ends_in_one_line_that_names_python_when_it_is_another(tmp_path):
    """A Python of another version is refused by the same kind of line."""
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    ran = make_setup(python=other, path=tmp_path)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)
    assert "Python 3.11, 3.12 or 3.13 is needed" in ran.stderr
