"""Read where the supervisor posts what happens; secrets are named, never written (F62)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.config.references import Secret
from penstock.config.schema import ProjectFile
from penstock.config.settings import from_environment
from penstock.config.toml_reader import place_of, read_model
from penstock.errors import ConfigError

__all__ = ["AirflowLogin", "EventsSettings", "load_events"]


@dataclass(frozen=True, slots=True)
class AirflowLogin:
    """An Airflow, and who speaks to it."""

    url: str
    user: str
    password: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    """Where events go: assets to an Airflow, alerts to a webhook, whose address is a secret itself."""

    airflow: AirflowLogin | None = None
    webhook: Secret | None = None

    def variables(self) -> list[str]:
        """Return the environment variables that hold secrets."""
        secrets = [self.webhook, self.airflow.password if self.airflow is not None else None]
        return [secret.env for secret in secrets if secret is not None and secret.env is not None]


def load_events(root: Path) -> EventsSettings:
    """Return where the supervisor of a project posts events; raises ConfigError with file and line, or a variable."""
    path = root / "conf" / "penstock.toml"
    project, lines = read_model(ProjectFile, path)
    around = from_environment(ProjectFile, os.environ).events
    texts = {**project.events.model_dump(exclude_none=True), **around.model_dump(exclude_none=True)}
    where = place_of(path, lines, ("events",)) if ("events",) in lines else "the environment variables"
    webhook = _secret(texts, "webhook", root, where)
    password = _secret(texts, "password", root, where)
    if "airflow" not in texts:
        return EventsSettings(webhook=webhook)
    if "user" not in texts or password is None:
        raise ConfigError("[events] takes `user`, and `password_env` or `password_file`, with `airflow`", where=where)
    return EventsSettings(airflow=AirflowLogin(texts["airflow"], texts["user"], password), webhook=webhook)


def _secret(texts: dict[str, str], name: str, root: Path, where: str) -> Secret | None:
    env, file = texts.get(f"{name}_env"), texts.get(f"{name}_file")
    if env is not None and file is not None:
        raise ConfigError(f"[events] takes `{name}_env` or `{name}_file`, not both", where=where)
    if env is None and file is None:
        return None
    return Secret(env, root / file if file is not None else None)
