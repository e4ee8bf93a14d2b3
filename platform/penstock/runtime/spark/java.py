"""The Java that Spark runs: where it is, and whether it will do. `make setup` asks before any package is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

__all__ = ["java_command", "java_major", "java_says", "java_trouble"]

MINIMUM_JAVA = 17
HOW_TO_GET_JAVA = (
    "install openjdk-17-jre-headless (Debian, Ubuntu), java-17-openjdk-headless (Fedora) or openjdk@17 (Homebrew), "
    "or point JAVA_HOME at one"
)
_VERSION = re.compile(r'^\s*(?:java|openjdk|\S+) version "(?P<version>[^"]+)"', re.MULTILINE)


def java_major(text: str) -> int | None:
    """Read the major version out of what `java -version` prints, None where it says none.

    Lines before it (`Picked up JAVA_TOOL_OPTIONS: …`) are passed over.
    Up to Java 8 the version was written 1.8.0_392; since Java 9 it is 17.0.15, and 21-ea for an early one.
    """
    match = _VERSION.search(text)
    if match is None:
        return None
    numbers = re.findall(r"\d+", match["version"])
    if not numbers:
        return None
    old_scheme = numbers[0] == "1" and len(numbers) > 1
    return int(numbers[1] if old_scheme else numbers[0])


def java_command(environ: Mapping[str, str]) -> str | None:
    """Find the java that Spark will run: JAVA_HOME's where it is set, otherwise the first one on PATH."""
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if os.access(java, os.X_OK) else None
    return shutil.which("java", path=environ.get("PATH"))


def java_trouble(command: str | None, printed: str, java_home: str | None) -> str | None:
    """Judge the Java found, from its path and what it said; None when it will do."""
    where = f"JAVA_HOME={java_home}" if java_home else "PATH"
    if command is None:
        return f"Java {MINIMUM_JAVA} or newer is needed and {where} has none: {HOW_TO_GET_JAVA}"
    major = java_major(printed)
    if major is None:
        return f"Java {MINIMUM_JAVA} or newer is needed and {command} does not say its version: {HOW_TO_GET_JAVA}"
    if major < MINIMUM_JAVA:
        return f"Java {MINIMUM_JAVA} or newer is needed and {command} is Java {major}: {HOW_TO_GET_JAVA}"
    return None


def java_says(command: str | None) -> str:
    """Return what `java -version` prints; empty where there is no Java."""
    if command is None:
        return ""
    # macOS has a /usr/bin/java that only says that there is none, and ends with 1: what it says decides.
    answer = subprocess.run(  # noqa: S603 - the user's own Java
        [command, "-version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return answer.stdout + answer.stderr
