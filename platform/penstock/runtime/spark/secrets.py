"""Take settings of Spark that are secrets from where the configuration says they are, and keep them out of sight (F62).

The configuration names a secret, `${env:NAME}` or `${file:PATH}`, and never holds it: it is copied with each version of
the code. The words of a process are seen by everybody on its machine, so a JVM reads secrets from a file that goes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.config.notifications import Secret
from penstock.config.values import reference_of

__all__ = ["properties_text", "resolved", "secrets_in_file"]

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SPECIAL = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", **{char: f"\\{char}" for char in " =:#!"}}


def resolved(settings: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return settings with the secrets that they name; paths are relative to `root`. Raises ConfigError."""
    return {name: _secret(value, root) for name, value in settings.items()}


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


def _secret(value: str, root: Path) -> str:
    reference = reference_of(value)
    if reference is None:
        return value
    kind, where = reference
    secret = Secret(env=where) if kind == "env" else Secret(file=root / where)
    return secret.read().get_secret_value()


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(char, char) for char in text)
