"""Make an environment of its own for a peer, below `.bench`: its packages must not meet those of Penstock."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.data import BENCH

__all__ = ["peer_environment", "plain_variables"]


def peer_environment(name: str, packages: list[str]) -> Path:
    """Return the Python of an environment with these packages, made if there is none."""
    place = BENCH / name
    python = place.absolute() / "bin" / "python"
    if not (place / "made").exists():
        venv.create(place, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(install, check=True, stdout=sys.stderr, env=plain_variables())
        (place / "made").touch()
    return python


def plain_variables() -> dict[str, str]:
    """Return our variables but for the one that would lead to our packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
