"""Read secrets from where the configuration says they are (F62).

The configuration names a secret, `${env:NAME}` or `${file:PATH}`, and never holds it: it is copied with each version of
the code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from penstock.config.values import reference_of
from penstock.errors import ConfigError

__all__ = ["Secret", "resolved", "resolved_text"]


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is: in an environment variable, or in a file."""

    env: str | None = None
    file: Path | None = None

    def read(self) -> SecretStr:
        """Return the secret as it is now; raises ConfigError where it is not there."""
        if self.file is None:
            where, secret = f"the environment variable {self.env}", os.environ.get(self.env or "")
        else:
            where = str(self.file)
            try:
                secret = self.file.read_text(encoding="utf-8").strip()
            except OSError as why:
                raise ConfigError(f"the secret cannot be read: {why.strerror}", where=where) from None
            except UnicodeDecodeError:
                raise ConfigError("the secret is not UTF-8", where=where) from None
        if not secret:
            raise ConfigError(f"there is no secret in {where}", where=where)
        return SecretStr(secret)


def resolved(settings: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return settings with the secrets that they name; paths are relative to `root`. Raises ConfigError."""
    return {name: resolved_text(value, root) for name, value in settings.items()}


def resolved_text(value: str, root: Path) -> str:
    """Return a value, or the secret that it names; raises ConfigError where that is not there."""
    reference = reference_of(value)
    if reference is None:
        return value
    kind, where = reference
    secret = Secret(env=where) if kind == "env" else Secret(file=root / where)
    return secret.read().get_secret_value()
