"""Read and route a branch of a source in one Python stage, where nothing in it is left for Spark to compute.

Rows that Spark has to see cross from Python to the JVM and back, one column after another.
A branch of plain columns is spared that: event time, fate and key hash are made here, as `dataframes` has Spark make
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.nodes import SourceNode
from penstock.runtime.dataframes import BAD_RECORD, NO_EVENT_TIME, TOO_FAR_AHEAD
from penstock.runtime.plan import Branch
from penstock.runtime.spark_hash import can_hash, spark_hash
from penstock.runtime.specs import FATE, TIME, RouteSpec, WindowLeafSpec
from penstock.sources.base import ERROR, PARTITION, POSITION, SourceReader, TaskReader

__all__ = ["DirectRead", "direct_read", "routable"]

_PLAIN = re.compile(r"`?([A-Za-z_]\w*)`?")


@dataclass(frozen=True, kw_only=True)
class DirectRead:
    """Say how a source is read for a branch that Spark does not see.

    `time` is the column of event time, None where the source has none; `schema` the source's columns as Spark has them.
    `hashes` names for each window step the column of the key hash, and the columns it is made of.
    """

    source: str
    reader: TaskReader
    splits: int
    max_future: int | None
    time: str | None
    schema: pa.Schema
    hashes: tuple[tuple[str, tuple[str, ...]], ...]


def direct_read(branch: Branch, reader: SourceReader, schema: pa.Schema, spec: RouteSpec) -> DirectRead | None:
    """Return how to read a branch without Spark; None where a step, a check, a key or the quarantine needs Spark."""
    node = branch.port
    assert isinstance(node, SourceNode)
    # The quarantine shows rows as Spark's to_json writes them.
    if branch.chain or (spec.source is not None and spec.source.quarantine.used):
        return None
    time = None
    if node.event_time is not None:
        found = _PLAIN.fullmatch(node.event_time.strip())
        if found is None or found[1] not in schema.names or not pa.types.is_timestamp(schema.field(found[1]).type):
            return None
        time = found[1]
    hashes = []
    for leaf in spec.leaves:
        if isinstance(leaf, WindowLeafSpec):
            read = [*leaf.keys.values(), *leaf.inputs.values()]
            if not all(name in schema.names for name in read):
                return None
            if not all(can_hash(schema.field(name).type) for name in leaf.keys.values()):
                return None
            hashes.append((leaf.hash_column, tuple(leaf.keys.values())))
        elif leaf.check is not None:
            return None
    return DirectRead(
        source=node.name,
        reader=reader.task_reader(),
        splits=reader.splits,
        max_future=node.max_future,
        time=time,
        schema=schema,
        hashes=tuple(hashes),
    )


def routable(rows: pa.Table, spec: DirectRead, now: int) -> pa.Table:
    """Return the columns that `route` reads; `now` is the batch time, microseconds."""
    table = rows.select(spec.schema.names).cast(spec.schema)
    bad = rows[ERROR].is_valid() if rows[ERROR].null_count < rows.num_rows else None
    times = pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
    if spec.time is not None:
        times = table[spec.time].cast(pa.int64())
        if bad is not None:
            times = pc.if_else(bad, pa.scalar(None, pa.int64()), times)
    fates = np.zeros(rows.num_rows, dtype=np.int32)
    if spec.max_future is not None:
        ahead = pc.greater(times, pa.scalar(now + spec.max_future, pa.int64()))
        fates[ahead.fill_null(fill_value=False).to_numpy()] = TOO_FAR_AHEAD
    if spec.time is not None and times.null_count:
        fates[times.is_null().to_numpy()] = NO_EVENT_TIME
    if bad is not None:
        fates[bad.to_numpy()] = BAD_RECORD
    for name, keys in spec.hashes:
        hashed = spark_hash([table[key].combine_chunks() for key in keys], rows.num_rows)
        table = table.append_column(name, pa.array(hashed))
    for name, column in ((TIME, times), (FATE, pa.array(fates))):
        table = table.append_column(name, column)
    for name in (PARTITION, POSITION):
        table = table.append_column(rows.schema.field(name), rows[name])
    return table
