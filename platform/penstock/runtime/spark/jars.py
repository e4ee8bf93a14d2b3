"""Fetch the jars that pyspark does not ship, by the Ivy it does ship, and compare each with a digest.

`delta_jars.xml` says which jars delta-spark needs, `delta_jars.sha256` what their bytes must be (the format of
sha256sum). A project keeps them in `.jars/`.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.runtime.spark.java import java_command

__all__ = ["Jars", "are_there", "delta_jars", "differences", "ensure", "read_digests"]

_DIGEST_LENGTH = 64  # a sha256 in hexadecimal
_SAID = 12
"""The last lines of what Ivy says name what it could not find; those before are its search."""


@dataclass(frozen=True, slots=True)
class Jars:
    """Jars that belong together: the folder they lie in, what asks Ivy for them, and the list of their digests."""

    folder: Path
    ivy_file: Path
    digests: Path

    def wanted(self) -> dict[str, str]:
        """Return name to digest of each jar."""
        return read_digests(self.digests.read_text())


def delta_jars(folder: Path) -> Jars:
    """Return the jars of delta-spark, which lie in this folder or are to."""
    here = Path(__file__)
    return Jars(folder, here.with_name("delta_jars.xml"), here.with_name("delta_jars.sha256"))


def read_digests(text: str) -> dict[str, str]:
    """Read lines of `digest  name` into name to digest; ValueError names a line that is neither that nor a comment."""
    digests: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        digest, _, name = line.partition("  ")
        if len(digest) != _DIGEST_LENGTH or not name or name in digests:
            raise ValueError(f"line {number} is not a digest, two blanks and a new name: {line!r}")
        digests[name] = digest
    return digests


def differences(wanted: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Compare name to digest of what is wanted and what was found: one sentence each for missing, wrong and extra."""
    missing = [f"{name} is missing" for name in sorted(wanted.keys() - present.keys())]
    wrong = [
        f"{name} is wrong: its sha256 is {present[name]}, {wanted[name]} is wanted"
        for name in sorted(wanted.keys() & present.keys())
        if wanted[name] != present[name]
    ]
    extra = [f"{name} is extra: remove it, or add its sha256" for name in sorted(present.keys() - wanted.keys())]
    return missing + wrong + extra


def digests_of(folder: Path) -> dict[str, str]:
    """Return name to sha256 of every jar and archive in a folder; empty where there is no folder."""
    files = sorted([*folder.glob("*.jar"), *folder.glob("*.tar.gz")])
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def ivy_command(java: str, ivy_jar: Path, jars: Jars) -> list[str]:
    """Return the command line of Ivy, which finds its repository by itself and checks the checksums it states."""
    pattern = f"{jars.folder.absolute()}/[artifact]-[revision].[ext]"
    main = [java, "-cp", str(ivy_jar), "org.apache.ivy.Main"]
    return [*main, "-warn", "-ivy", str(jars.ivy_file), "-retrieve", pattern, "-overwriteMode", "always"]


def are_there(jars: Jars) -> bool:
    """Return whether all jars are there and right; others may lie beside them."""
    digests = digests_of(jars.folder)
    return all(digests.get(name) == digest for name, digest in jars.wanted().items())


def ensure(jars: Jars) -> list[str]:
    """Fetch what is missing or wrong, and return what is still not as it must be: nothing, when all is well."""
    with _alone_in(jars.folder):
        output = None if are_there(jars) else fetch(jars)
        trouble = differences(jars.wanted(), digests_of(jars.folder))
    return [*trouble, f"Ivy said:\n{output}"] if output and trouble else trouble


def fetch(jars: Jars) -> str | None:
    """Run Ivy; return None when it went well, otherwise the end of what it said."""
    java = java_command(os.environ)
    spark = importlib.util.find_spec("pyspark")
    ivy_jars = sorted(Path(spark.origin).parent.glob("jars/ivy-*.jar")) if spark is not None and spark.origin else []
    if java is None or not ivy_jars:
        return "there is no Java, or no pyspark in this environment"
    command = ivy_command(java, ivy_jars[0], jars)
    # Ivy writes its lock files where it is called.
    ran = subprocess.run(  # noqa: S603 - the user's own Java
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=jars.folder
    )
    if ran.returncode == 0:
        return None
    return "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-_SAID:])


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
