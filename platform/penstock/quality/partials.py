"""The measurements of one task's rows: a few numbers for each unit, which merge exactly in any order.

The layout, all of it Arrow, so that a batch that closes hundreds of windows costs a few vectorised calls:

- `units`: one row a unit (a window, or the whole batch). Columns `key0`, `key1`, … are the values of `by`;
  every other column is named `<what>.<how>`, where how is `sum`, `min` or `max` and says how two rows merge.
- `sums`: floating sums as integers, one row for each unit, rule and bin of exponents (`penstock.quality.exact`).
- `values`: for each rule of uniqueness the distinct non-null values of each unit with their counts.

Only `values` grows with the rows: one entry for each distinct value of the column in a task, its width plus 8 bytes,
compressed on the way. A rule of uniqueness needs that much; a rule on a key of few values costs nothing.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import GateError

__all__ = ["Partial", "added", "key_names", "merge_partials", "merge_units"]

_MAGIC = b"PSGATE1\n"
_SUM_VALUES = ("high", "low")


@dataclass(frozen=True, slots=True)
class Partial:
    """The measurements of some rows; `by` names the columns that tell units apart, none for one unit."""

    by: tuple[str, ...]
    units: pa.Table
    sums: pa.Table
    values: Mapping[int, pa.Table] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the partial as bytes for a receipt or a staged file: a header, then Arrow streams, checksummed."""
        parts = [_stream(self.units), _stream(self.sums), *(_stream(table) for table in self.values.values())]
        header = {"by": self.by, "rules": list(self.values), "lengths": [len(p) for p in parts]}
        text = json.dumps(header).encode()
        body = len(text).to_bytes(4, "little") + text + b"".join(parts)
        return _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Partial:
        """Return the partial that `to_bytes` wrote. Raises GateError when the bytes are not exactly that."""
        head = len(_MAGIC) + 4
        body = data[head:]
        if data[: len(_MAGIC)] != _MAGIC or zlib.crc32(body) != int.from_bytes(data[len(_MAGIC) : head], "little"):
            raise GateError("the measurements of a task are damaged")
        start = 4 + int.from_bytes(body[:4], "little")
        header = json.loads(body[4:start])
        tables = []
        for length in header["lengths"]:
            tables.append(pa.ipc.open_stream(pa.py_buffer(body[start : start + length])).read_all())
            start += length
        return cls(tuple(header["by"]), tables[0], tables[1], dict(zip(header["rules"], tables[2:], strict=True)))

    def to_json(self) -> dict[str, str]:
        """Return the partial as a JSON value: its bytes in base 64."""
        return {"partial": base64.b64encode(self.to_bytes()).decode("ascii")}

    @classmethod
    def from_json(cls, value: Mapping[str, str]) -> Partial:
        """Return the partial that `to_json` gave."""
        return cls.from_bytes(base64.b64decode(value["partial"]))


def key_names(by: Sequence[str]) -> list[str]:
    """Return the internal names of the unit's columns; without `by` there is one, the same for every row."""
    return [f"key{place}" for place in range(max(1, len(by)))]


def merge_partials(partials: Iterable[Partial]) -> Partial | None:
    """Return the partials of all tasks as one, with one row a unit; None when there are none."""
    parts = list(partials)
    if not parts:
        return None
    by = parts[0].by
    if any(p.by != by or p.values.keys() != parts[0].values.keys() for p in parts):
        raise GateError("tasks measured by different units or rules")
    keys = key_names(by)
    rules = sorted(parts[0].values)
    return Partial(
        by,
        merge_units(pa.concat_tables(p.units for p in parts), keys),
        added(pa.concat_tables(p.sums for p in parts), [*keys, "rule", "bin"], _SUM_VALUES),
        {r: added(pa.concat_tables(p.values[r] for p in parts), [*keys, "value"], ("count",)) for r in rules},
    )


def merge_units(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the table with one row a unit, each column merged as its name says."""
    measures = [name for name in table.column_names if name not in keys]
    grouped = table.group_by(keys, use_threads=False).aggregate([(n, n.rpartition(".")[2]) for n in measures])
    return pa.table({**{k: grouped[k] for k in keys}, **{n: grouped[f"{n}_{n.rpartition('.')[2]}"] for n in measures}})


def added(table: pa.Table, keys: list[str], names: Sequence[str]) -> pa.Table:
    """Return the table with one row for each value of the keys, the columns of these names added up."""
    grouped = table.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in names])
    return pa.table({**{k: grouped[k] for k in keys}, **{n: grouped[f"{n}_sum"] for n in names}})


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
