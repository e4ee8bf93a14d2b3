"""Hand secrets to a JVM and keep them out of sight (F62).

The words of a process are seen by everybody on its machine, so a JVM reads secrets from a file that goes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["properties_text", "secrets_in_file"]

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SPECIAL = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", **{char: f"\\{char}" for char in " =:#!"}}


@contextmanager
def secrets_in_file(secrets: Mapping[str, str]) -> Iterator[None]:
    """Have a JVM that pyspark starts inside the block read settings from a file of its own, which then goes."""
    if not secrets:
        yield
        return
    before = os.environ.get(_ARGUMENTS)
    with tempfile.NamedTemporaryFile("w", prefix="penstock-spark-", suffix=".properties", encoding="utf-8") as file:
        file.write(properties_text(secrets))
        file.flush()
        os.environ[_ARGUMENTS] = f"--properties-file {file.name} --load-spark-defaults {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            os.environ.pop(_ARGUMENTS)
            if before is not None:
                os.environ[_ARGUMENTS] = before


def properties_text(settings: Mapping[str, str]) -> str:
    """Return settings as a Java properties file."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in sorted(settings.items()))


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(char, char) for char in text)
