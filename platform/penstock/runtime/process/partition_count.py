"""Choose how many state partitions a step gets whose code names no number."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain

from penstock.checkpoint.log.queries import find_restore_by_command
from penstock.checkpoint.log.recovery import Damage, Recovered, partitions_of, recover
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.config.settings import Settings
from penstock.errors import PenstockError
from penstock.graph.partitions import MOST_PARTITIONS, usable_cores
from penstock.runtime.restore.target import LAST, RestoreTarget

__all__ = ["partition_chooser", "spark_cores"]

_OF_A_CLUSTER = 8
"""Where nothing says how many cores a cluster gives: two small machines."""


def partition_chooser(
    settings: Settings, folder: CheckpointFolder, start: RestoreTarget = LAST, command: str | None = None
) -> Callable[[str], int]:
    """Return what chooses the state partitions of a step by its name; `folder` is the job's checkpoint.

    It is the number of `--partitions`, otherwise the number that the step has in what the start restores, or in the
    checkpoint, otherwise the number of Spark's cores. A command restores once, so a repeated one takes the number in
    the checkpoint. The log is read once, and only if a step of the job needs it.
    A log that cannot be read is no error here: a start reads it again, and reports what is wrong with it.
    """

    @cache
    def recorded() -> Mapping[str, int]:
        with suppress(PenstockError):
            log = job_log(folder)
            if log is not None:
                recovered = recover(log, Damage.LIST)
                # Where the newest entries are lost, a restore goes on from one of the others.
                others = (partitions_of(log, kept) for kept in reversed(recovered.kept))
                counts = filter(None, chain([recovered.partitions], others))
                return {**next(counts, {}), **_gone_back_to(recovered, folder, start, command)}
        return {}

    def choose(step: str) -> int:
        if start.partitions is not None:
            return start.partitions
        return recorded().get(step) or spark_cores(settings.spark.master, settings.spark.conf)

    return choose


def _gone_back_to(
    recovered: Recovered, folder: CheckpointFolder, start: RestoreTarget, command: str | None
) -> Mapping[str, int]:
    """Return the partitions of the state that a start restores; a snapshot can be written in any number of them."""
    if start.snapshot is not None or not start.goes_back:
        return {}
    if command is not None and find_restore_by_command(recovered.log, command) is not None:
        return {}
    with suppress(PenstockError):
        return start.resolve(recovered, folder).partitions
    return {}


def spark_cores(master: str, conf: Mapping[str, str]) -> int:
    """Return how many cores a session of these settings runs tasks on, from 1 to 4096, as far as they tell."""
    local = re.match(r"local(?:-cluster)?(?:\[(?P<said>[^\]]*)\])?", master)
    if local is None:
        cores = _said(conf, "spark.default.parallelism") or _said(conf, "spark.cores.max") or _of_executors(conf)
    elif master.startswith("local-cluster"):
        workers, each = (int(number) for number in local["said"].split(",")[:2])
        cores = workers * each
    else:
        threads = (local["said"] or "1").split(",")[0].strip()
        cores = usable_cores() if threads == "*" else int(threads)
    return max(1, min(cores, MOST_PARTITIONS))


def _of_executors(conf: Mapping[str, str]) -> int:
    executors = _said(conf, "spark.executor.instances")
    return executors * (_said(conf, "spark.executor.cores") or 1) if executors else _OF_A_CLUSTER


def _said(conf: Mapping[str, str], name: str) -> int:
    text = conf.get(name, "")
    return int(text) if text.isdecimal() else 0
