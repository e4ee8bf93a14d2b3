"""Say in one line what this machine lacks before anything is downloaded: Java 17 or newer, Python's venv module.

Run as `python -m tools.prerequisites` by the interpreter that `make setup` would use.
Prints nothing and ends with 0 when all is there, otherwise one line and 1.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

# No package is installed yet, and this part of Penstock needs none.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))

from penstock.runtime.spark.java import java_command, java_says, java_trouble


def venv_trouble(*, has_ensurepip: bool) -> str | None:
    """Judge whether this Python can make a virtual environment; Debian ships that part on its own."""
    if has_ensurepip:
        return None
    version = "{}.{}".format(*sys.version_info[:2])
    return f"{sys.executable} cannot make virtual environments: install python{version}-venv (Debian, Ubuntu)"


def main() -> int:
    """Print the first thing that is missing."""
    command = java_command(os.environ)
    trouble = venv_trouble(has_ensurepip=importlib.util.find_spec("ensurepip") is not None) or java_trouble(
        command, java_says(command), os.environ.get("JAVA_HOME")
    )
    if trouble is None:
        return 0
    print(trouble)
    return 1


if __name__ == "__main__":
    sys.exit(main())
