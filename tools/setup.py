"""Install what the project needs into `.venv` and `.jars`, once; a second run only looks.

Run as `python -m tools.setup` by Python 3.11 or newer, with nothing else installed.
Every package comes from `requirements/all.txt` by its hash, uv itself included, and so does what builds the few
packages that come as source (`--build-constraints`).
"""

from __future__ import annotations

import hashlib
import re
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements" / "all.txt"
STAMP = VENV / "penstock-setup"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
CHECKPOINTS = ROOT / "checkpoints"


class SetupFailed(Exception):
    """One of the programs that setup runs ended badly; it has said why itself."""


def pinned(lock: str, name: str) -> str:
    """Cut one package's requirement out of a lock file: its line `name==version` and the hashes that continue it.

    LookupError where the lock has no such package.
    """
    match = re.search(rf"^{re.escape(name)}==(?:.*\\\n)*.*\n?", lock, re.MULTILINE)
    if match is None:
        raise LookupError(name)
    return match.group()


def version_of(requirement: str) -> str:
    """Read 1.2.3 out of a requirement that begins with name==1.2.3."""
    return requirement.partition("==")[2].split()[0]


def fingerprint(root: Path, python: str, *contents: bytes) -> str:
    """Digest all that decides what is installed and where; a stamp with another one is out of date."""
    digest = hashlib.sha256(f"{root}\n{python}\n".encode())
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def run(*command: str | Path) -> None:
    """Run a program without input; its errors go to the terminal, and end the setup."""
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL, cwd=ROOT).returncode != 0:
        raise SetupFailed(" ".join(str(part) for part in command))


def works(*command: str | Path) -> str | None:
    """Return what a program prints, None where it cannot be run or ends badly."""
    try:
        ran = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    return ran.stdout


def make_venv() -> None:
    """Make the virtual environment where there is none that works.

    What another try left half done is completed; one whose Python is gone or another version is made anew.
    """
    same = f"sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    if works(PYTHON, "-c", f"import pip, sys; {same}") is None:
        say("virtual environment .venv")
        keep = works(PYTHON, "-c", f"import sys; {same}") is not None
        run(sys.executable, "-m", "venv", *([] if keep else ["--clear"]), VENV)


def install_uv(lock: str) -> None:
    """Install the uv of the lock with pip, checked by its hash."""
    requirement = pinned(lock, "uv")
    version = version_of(requirement)
    if (works(UV, "--version") or "").split()[1:2] == [version]:
        return
    say(f"uv {version}")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirement)
        file.flush()
        options = [
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--require-hashes",
            "--requirement",
            file.name,
        ]
        run(PYTHON, "-m", "pip", "install", *options)


def install_packages(lock: str) -> None:
    """Make the environment exactly the lock's, then add penstock itself as an editable package."""
    say(f"{len(re.findall(r'^[a-z0-9].*==', lock, re.MULTILINE))} locked packages (1.4 GB in .venv)")
    run(UV, "pip", "sync", "--quiet", "--python", PYTHON, "--require-hashes", "--build-constraints", LOCK, LOCK)
    say("penstock, editable")
    run(UV, "pip", "install", "--quiet", "--python", PYTHON, "--no-deps", "--no-build-isolation", "--editable", ROOT)


def close_to_others(folder: Path) -> None:
    """Take the right to write from group and others, which a clone made under umask 002 gives.

    A checkpoint root that has it is refused when a job starts (FAULTS F65).
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(mode & ~(stat.S_IWGRP | stat.S_IWOTH))


def say(what: str) -> None:
    """Tell people what is going on, a line a step."""
    print(f"setup: {what}", flush=True)


def main() -> int:
    """Bring environment and jars up to date; quick when they are."""
    begin = time.monotonic()
    lock = LOCK.read_bytes()
    wanted = fingerprint(ROOT, sys.version.split()[0], lock, (ROOT / "pyproject.toml").read_bytes())
    try:
        if not STAMP.exists() or STAMP.read_text() != wanted:
            make_venv()
            install_uv(lock.decode())
            install_packages(lock.decode())
            STAMP.write_text(wanted)
        run(PYTHON, "-m", "tools.jars")
        close_to_others(CHECKPOINTS)
    except SetupFailed as failed:
        print(f"setup: this failed, see above: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: interrupted; `make setup` goes on from here", file=sys.stderr)
        return 130
    say(f"packages and jars are there ({time.monotonic() - begin:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
