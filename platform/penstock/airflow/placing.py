"""Say where and how tasks run, from `[airflow]` of the configuration.

A task that follows a stream lasts as long as the stream. It is deferred, so that it takes no worker slot, and so is the
one that waits until a driver runs. Where a follower is not, `pool` bounds how many slots such tasks take. Commands wait
behind none of them: they stay in Airflow's default pool and go before what follows streams.
"""

from __future__ import annotations

import os
from typing import Any

from airflow.configuration import conf

from penstock.errors import PenstockError
from penstock.runtime.config import airflow_defaults
from penstock.runtime.config_sections import AirflowDefaults
from penstock.runtime.project import Project

__all__ = ["default_args", "follows", "placing_of"]

_FIRST = 100
"""By how much commands go before what follows streams."""


def placing_of(project: Project, job: str | None = None) -> AirflowDefaults:
    """Return how the tasks of a job, or of the project, run; as Airflow has it where a file is wrong."""
    try:
        return airflow_defaults(project.root) if job is None else project.settings(job).airflow
    except PenstockError:
        return AirflowDefaults()


def default_args(placing: AirflowDefaults) -> dict[str, Any]:
    """Return the `default_args` of a DAG, which are those of its commands."""
    said = {"owner": placing.owner, "queue": placing.queue}
    priority = {"priority_weight": _FIRST + (placing.priority or 1), "weight_rule": "absolute"}
    return {**{name: value for name, value in said.items() if value is not None}, **priority}


def follows(placing: AirflowDefaults) -> dict[str, Any]:
    """Return the arguments of a task that follows a stream to its end."""
    deferrable = placing.deferrable
    if deferrable is None:
        deferrable = _said_to_airflow()
    found: dict[str, Any] = {"priority_weight": placing.priority or 1, "deferrable": deferrable is not False}
    return found if placing.pool is None else {**found, "pool": placing.pool}


def _said_to_airflow() -> bool | None:
    """Return what the environment says of `[operators] default_deferrable`.

    The file cannot be asked: Airflow writes its own default, false, into each airflow.cfg that it makes.
    """
    said = "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE" in os.environ
    return conf.getboolean("operators", "default_deferrable") if said else None
