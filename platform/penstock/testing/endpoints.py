"""Look at the ends of a job: what sinks and late streams got, and what a new job takes over from the old one."""

from __future__ import annotations

import hashlib
import json
from copy import copy
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyarrow.dataset import dataset

from penstock.graph.job import Job
from penstock.graph.nodes import LateNode, QuarantineNode, SinkNode, SourceNode
from penstock.graph.steps import StepNode
from penstock.runtime.process.job_run import JobRun
from penstock.sinks import Delta, JsonLines, MemorySink, Parquet
from penstock.sources.file.reader import FilesReader
from penstock.sources.memory import MemorySource

__all__ = ["hand_over", "shown", "with_late_sinks", "without_settling"]

_LATE = "harness_late_"
_ROOM = 63 - len(_LATE)
"""Characters of a name that are left for a stream's."""

_sinks: WeakKeyDictionary[Job, dict[str, MemorySink]] = WeakKeyDictionary()
"""For each job its late streams' sinks, which outlive a harness as the job's own do."""


def with_late_sinks(job: Job) -> tuple[Job, dict[str, str]]:
    """Return the job with one sink more directly on each late stream, and their names by stream.

    The quarantine of a window has such a sink too where the job does not read it. The job itself stays as it was
    written.
    """
    seen, names = copy(job), dict[str, str]()
    seen._nodes, seen._names = list(job._nodes), dict(job._names)  # noqa: SLF001 - a copy that shares no list
    kept = _sinks.setdefault(job, {})
    for node in job._nodes:  # noqa: SLF001 - the graph of a job whose late stream has no sink is refused
        if not isinstance(node, StepNode):
            continue
        streams = list(node.spec.side_streams(node.name).values())
        for stream in (name for kind, name in streams if kind is LateNode and name not in names):
            names[stream] = _name(stream)
            seen.late(stream).write(names[stream], kept.setdefault(stream, MemorySink()))
        if (QuarantineNode, node.name) in streams and node.spec.kind == "window" and not _reads(job, node.name):
            aside = f"quarantine of {node.name}"  # which no stream has as its name
            names[aside] = _name(f"aside_{node.name}")
            seen.quarantine(node.name).write(names[aside], kept.setdefault(aside, MemorySink()))
    return seen, names


def _reads(job: Job, quarantine: str) -> bool:
    nodes = job._nodes  # noqa: SLF001 - as above
    return any(isinstance(node, QuarantineNode) and node.name == quarantine for node in nodes)


def without_settling(run: JobRun) -> JobRun:
    """Return the run, which reads files as soon as they are there: a test writes whole files, and does not wait."""
    for reader in run.engine.readers.values():
        if isinstance(reader, FilesReader):
            reader.listing.settle = 0
    return run


def hand_over(old: Job, new: Job) -> None:
    """Give memory sources and sinks of the new job the rows and positions of the old job's ones of the same name."""
    known = {(type(n), n.name): n for n in _ends(old)}
    for node in _ends(new):
        match node, known.get((type(node), node.name)):
            case SourceNode(source=MemorySource() as mine), SourceNode(source=MemorySource() as theirs):
                mine.continue_from(theirs)
            case SinkNode(sink=MemorySink() as mine), SinkNode(sink=MemorySink() as theirs):
                mine.continue_from(theirs)


def shown(sink: Any) -> list[dict[str, Any]]:
    """Return all rows that a sink shows; none for one that keeps nothing, as a console, and for topics and databases.

    Of a folder they are in the order of its files. What JSON has no type for is a text, and so are dates by which
    folders are named.
    """
    rows: list[dict[str, Any]] = []
    if isinstance(sink, MemorySink):
        return sink.rows()
    if isinstance(sink, Delta):
        from deltalake import DeltaTable

        rows = pa.table(DeltaTable(str(sink.path)).to_pyarrow_table()).to_pylist()
    elif isinstance(sink, Parquet | JsonLines) and "://" not in str(sink.path):
        files = [file.path for file in sink.files()]
        if isinstance(sink, JsonLines):
            lines = (line for file in files for line in Path(file).read_text(encoding="utf-8").split("\n"))
            rows = [json.loads(line) for line in lines if line]
        elif files:
            folder = dataset(files, partitioning="hive", partition_base_dir=str(sink.path))
            rows = folder.to_table().to_pylist()
    return rows


def _ends(job: Job) -> list[SourceNode | SinkNode]:
    nodes = with_late_sinks(job)[0]._nodes  # noqa: SLF001 - as above
    return [n for n in nodes if isinstance(n, SourceNode | SinkNode)]


def _name(stream: str) -> str:
    if len(stream) > _ROOM:
        stream = f"{stream[: _ROOM - 9]}_{hashlib.sha256(stream.encode()).hexdigest()[:8]}"
    return _LATE + stream
