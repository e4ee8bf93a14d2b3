"""Keep the state of a step's partitions in sorted, immutable segment files (DESIGN 5 and 6; docs/state-segments.md).

For state functions there is what a job needs of it: `idle`, `event_time`, `OnError`, and the `State` that a function is
handed. `read` gives the state of any job as a table, without its code.
"""

from importlib import import_module
from typing import Any

from penstock.graph.policies import OnError
from penstock.graph.timeouts import BATCH, EVENT, Timeout, event_time, idle
from penstock.state.compaction import LATEST, Combine, Merged, compact, latest
from penstock.state.compaction_planner import SLACK_BYTES, CompactionPlan, budget, plan_compaction
from penstock.state.full_compaction import fold, live_rows
from penstock.state.key_state import FiredTimer, State
from penstock.state.keys import check_partition, partition_of
from penstock.state.limits import check_rows, check_sizes, unreferenced
from penstock.state.manifest import Manifest, ManifestRef, Run
from penstock.state.reader import StateReader
from penstock.state.references import PartRef, Piece, SegmentRef, segment_name
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH, sort_rows
from penstock.state.segment_writer import SegmentWriter, write_segment
from penstock.state.writer import Change, Written, manifest_name, write_changes, write_manifest

__all__ = [
    "BATCH",
    "DELETED",
    "EVENT",
    "EXPIRES",
    "GROUP",
    "HASH",
    "LATEST",
    "SLACK_BYTES",
    "Change",
    "Combine",
    "CompactionPlan",
    "FiredTimer",
    "Manifest",
    "ManifestRef",
    "Merged",
    "OnError",
    "PartRef",
    "Piece",
    "Run",
    "SegmentRef",
    "SegmentWriter",
    "State",
    "StateReader",
    "Timeout",
    "Written",
    "budget",
    "check_partition",
    "check_rows",
    "check_sizes",
    "compact",
    "event_time",
    "fold",
    "idle",
    "latest",
    "live_rows",
    "manifest_name",
    "partition_of",
    "plan_compaction",
    "segment_name",
    "sort_rows",
    "unreferenced",
    "write_changes",
    "write_manifest",
    "write_segment",
]


def __getattr__(name: str) -> Any:
    """Find `read`, which users look for here: it reads whole jobs, and so stands above the state's own layer."""
    if name == "read":
        return getattr(import_module("penstock.runtime.inspect.state_reader"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
