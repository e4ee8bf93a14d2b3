"""Settings of where and how tasks run, from `[airflow]` of the configuration.

A task that follows a stream lasts as long as the stream. It is deferred, so that it takes no worker slot, and so is the
one that waits until a driver runs. Where a follower is not, `pool` bounds how many slots such tasks take. Commands wait
behind none of them: they stay in Airflow's default pool and go before what follows streams.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.configuration import conf

from penstock.config.schema import AirflowDefaults
from penstock.config.settings import airflow_defaults
from penstock.errors import PenstockError
from penstock.graph.durations import Duration
from penstock.runtime.process.project import Project

__all__ = ["commands", "default_args", "follows", "placing_of", "waits"]

TRIES = 3
RETRY = timedelta(seconds=5)
_TRIES_OF_A_LIFE = 100  # for a task that lives as long as its stream, through restarts of workers and storage
_FIRST = 100
"""By how much commands go before what follows streams."""


def placing_of(project: Project, job: str | None = None) -> AirflowDefaults:
    """Return how the tasks of a job, or of the project, run; as Airflow has it where a file is wrong."""
    try:
        return airflow_defaults(project.root) if job is None else project.settings(job).airflow
    except PenstockError:
        return AirflowDefaults()


def default_args(placing: AirflowDefaults) -> dict[str, Any]:
    """Return the `default_args` of a DAG: a few tries, and what the configuration says."""
    settings = {"owner": placing.owner, "queue": placing.queue, **dict(placing.default_args)}
    filled = {
        name: timedelta(microseconds=value.micros) if isinstance(value, Duration) else value
        for name, value in settings.items()
        if value is not None
    }
    return {"retries": TRIES, "retry_delay": RETRY, **filled}


def commands(placing: AirflowDefaults) -> dict[str, Any]:
    """Return the `default_args` of a DAG whose tasks command streams."""
    return {**default_args(placing), "priority_weight": _FIRST + (placing.priority or 1), "weight_rule": "absolute"}


def waits(placing: AirflowDefaults) -> dict[str, Any]:
    """Return the arguments of a task that waits for a stream: whether it holds a worker slot meanwhile.

    Of Airflow's `[operators] default_deferrable` only the environment counts: Airflow writes its own default, false,
    into each airflow.cfg that it makes.
    """
    deferrable = placing.deferrable
    if deferrable is None and "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE" in os.environ:
        deferrable = conf.getboolean("operators", "default_deferrable")
    return {"deferrable": deferrable is not False}


def follows(placing: AirflowDefaults) -> dict[str, Any]:
    """Return the arguments of a task that follows a stream to its end: it has no time limit, and many tries.

    Workers are renewed and storage has bad hours in the life of a stream.
    """
    tries = max(_TRIES_OF_A_LIFE, placing.default_args.retries or 0)
    pool = {} if placing.pool is None else {"pool": placing.pool}
    return {
        "priority_weight": placing.priority or 1,
        "retries": tries,
        "execution_timeout": None,
        **waits(placing),
        **pool,
    }
