"""Fetch the jars that pyspark does not ship, by the Ivy it does ship, and compare each with a committed digest.

Run as `python -m tools.jars`: at once done where all jars are there and right.
`conf/ivy.xml` says which, `conf/jars.sha256` what their bytes must be (the format of sha256sum), `.jars/` holds them.
`python -m tools.jars hdfs` does the same for the HDFS that tests start: 40 MB that only who runs the tests needs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.prerequisites import java_command

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".jars"
VENV = ROOT / ".venv"
_DIGEST_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Jars:
    """Jars that belong together: the folder they lie in, what asks Ivy for them, and the list of their digests."""

    folder: Path
    ivy_file: Path
    digests: Path


SPARK = Jars(FOLDER, ROOT / "conf" / "ivy.xml", ROOT / "conf" / "jars.sha256")
HDFS = Jars(FOLDER / "hdfs", ROOT / "conf" / "ivy-hdfs.xml", ROOT / "conf" / "jars-hdfs.sha256")


def read_digests(text: str) -> dict[str, str]:
    """Read lines of `digest  name` into name to digest; ValueError names a line that is neither that nor a comment."""
    digests: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        digest, _, name = line.partition("  ")
        if len(digest) != _DIGEST_LENGTH or not name or name in digests:
            msg = f"line {number} is not a digest, two blanks and a new name: {line!r}"
            raise ValueError(msg)
        digests[name] = digest
    return digests


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Compare name to digest of what is wanted and what was found: one sentence each for missing, wrong and extra."""
    missing = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    wrong = [
        f"{name} is wrong: its sha256 is {found[name]}, {wanted[name]} is wanted"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name] != found[name]
    ]
    extra = [f"{name} is extra: remove it, or add its sha256" for name in sorted(found.keys() - wanted.keys())]
    return missing + wrong + extra


def digests_of(folder: Path) -> dict[str, str]:
    """Name to sha256 of every jar in a folder; empty where there is no folder."""
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in sorted(folder.glob("*.jar"))}


def ivy_command(java: str, ivy_jar: Path, jars: Jars) -> list[str]:
    """Build the command line of FACTS 2: Ivy finds its repository by itself and checks the checksums it states."""
    pattern = f"{jars.folder}/[artifact]-[revision].[ext]"
    main = [java, "-cp", str(ivy_jar), "org.apache.ivy.Main"]
    return [*main, "-warn", "-ivy", str(jars.ivy_file), "-retrieve", pattern, "-overwriteMode", "always"]


def fetch(jars: Jars) -> str | None:
    """Run Ivy; None when it went well, otherwise the end of what it said."""
    java = java_command(os.environ)
    ivy_jars = sorted(VENV.glob("lib/python3*/site-packages/pyspark/jars/ivy-*.jar"))
    if java is None or not ivy_jars:
        return "no Java, or no pyspark in .venv: run `make setup`"
    command = ivy_command(java, ivy_jars[0], jars)
    ran = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=ROOT)
    if ran.returncode == 0:
        return None
    return "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-12:])


def ensure(jars: Jars) -> list[str]:
    """Fetch what is missing or wrong, and return what is still not as it must be: nothing, when all is well."""
    wanted = read_digests(jars.digests.read_text())
    with _alone_in(jars.folder):
        found = digests_of(jars.folder)
        if all(found.get(name) == digest for name, digest in wanted.items()):
            return differences(wanted, found)
        print(f"setup: {len(wanted)} jars by Ivy into {jars.folder.relative_to(FOLDER.parent)}/", flush=True)
        said = fetch(jars)
        trouble = differences(wanted, digests_of(jars.folder))
    return [*trouble, f"Ivy said:\n{said}"] if said and trouble else trouble


def main(args: Sequence[str] = ()) -> int:
    """Print each jar that is not as it must be."""
    jars = HDFS if list(args) == ["hdfs"] else SPARK
    trouble = ensure(jars)
    for line in trouble:
        print(f"jars: {line}", file=sys.stderr)
    if trouble:
        place = jars.folder.relative_to(FOLDER.parent)
        print(f"jars: {place}/ is not what conf/{jars.digests.name} says.", file=sys.stderr)
    return 1 if trouble else 0


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes out: two that run tests must not fetch into one folder at once."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
