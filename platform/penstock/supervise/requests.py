"""Name the requests that a person makes of a stream, for Airflow's DAGs and for the pages.

`DAGS` names the DAG that makes a request from Airflow's trigger form, and from the pages. `StreamControl.ask` makes the
first five. `saving.save` names a checkpoint. `penstock held`, which loads the job, releases and discards held batches
(SEMANTICS 11.5).
"""

from __future__ import annotations

from enum import Enum

__all__ = ["DAGS", "Request"]


class Request(Enum):
    """A request that is neither a start nor a restart."""

    STOP = "stop"
    DRAIN = "drain"
    SUSPEND = "suspend"
    RESUME = "resume"
    LIMITS = "limits"
    SAVE = "save"
    RELEASE = "release"
    DISCARD = "discard"


DAGS = {
    Request.STOP: "stop_stream",
    Request.DRAIN: "drain_stream",
    Request.SUSPEND: "suspend_stream",
    Request.RESUME: "resume_stream",
    Request.LIMITS: "limit_stream",
    Request.SAVE: "save_checkpoint",
    Request.RELEASE: "release_held_batch",
    Request.DISCARD: "discard_held_batch",
}
"""The DAG of each request.

All take `job`, and `note` is of none. `limit_stream` takes `rows` (null for the configuration's), `save_checkpoint`
takes `name`, the last two take `batch`.
"""
