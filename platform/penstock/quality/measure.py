"""Measure a task's rows for every rule of a gate, for all units at once (SEMANTICS 11.3).

A `Partial` is a few numbers for each unit, which merge exactly in any order. `penstock.quality.verdict` says what each
number is for, and reads it by the same name. The layout, all of it Arrow, so that a batch that closes hundreds of
windows costs a few vectorised calls:

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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import GateError
from penstock.quality.exact import bins_of
from penstock.quality.predicates import NOT_COUNTED, UNEXPECTED, CompiledRule, Family
from penstock.quality.suite import Kind
from penstock.state.hashing import normalise

__all__ = ["Partial", "fails_mask", "key_names", "measure", "merge_partials"]

_MAGIC = b"PSGATE1\n"
_SUM_VALUES = ("high", "low")
_UNIQUE = "expect_column_values_to_be_unique"
_LEAST = "expect_column_min_to_be_between"
_SUMS = ("expect_column_mean_to_be_between", "expect_column_sum_to_be_between")
_DIGITS = 76  # of decimal256: no column of decimal(38) with fewer than 10**38 rows overflows it


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
        _merge_units(pa.concat_tables(p.units for p in parts), keys),
        _added(pa.concat_tables(p.sums for p in parts), [*keys, "rule", "bin"], _SUM_VALUES),
        {r: _added(pa.concat_tables(p.values[r] for p in parts), [*keys, "value"], ("count",)) for r in rules},
    )


def _merge_units(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the table with one row a unit, each column merged as its name says."""
    measures = [name for name in table.column_names if name not in keys]
    grouped = table.group_by(keys, use_threads=False).aggregate([(n, n.rpartition(".")[2]) for n in measures])
    return pa.table({**{k: grouped[k] for k in keys}, **{n: grouped[f"{n}_{n.rpartition('.')[2]}"] for n in measures}})


def _added(table: pa.Table, keys: list[str], names: Sequence[str]) -> pa.Table:
    grouped = table.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in names])
    return pa.table({**{k: grouped[k] for k in keys}, **{n: grouped[f"{n}_sum"] for n in names}})


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def measure(rules: Sequence[CompiledRule], table: pa.Table, by: Sequence[str]) -> Partial:
    """Return the partial of the rows, which hold the hidden columns of the rules; see `CompiledGate.measure`."""
    keys = {
        name: table[column] if by else pa.chunked_array([pa.array(np.zeros(table.num_rows, np.int8))])
        for name, column in zip(key_names(by), by or ("",), strict=True)
    }
    columns: dict[str, pa.ChunkedArray] = {"rows.sum": pa.array(np.ones(table.num_rows, np.int64))}
    sums: list[pa.Table] = []
    values: dict[int, pa.Table] = {}
    for rule in rules:
        if rule.type == _UNIQUE:
            values[rule.position] = _value_counts(table[rule.column], keys)
            continue
        columns |= {f"{rule.position}.{name}": column for name, column in _numbers(rule, table).items()}
        if rule.type in _SUMS and rule.column_type.family is Family.FLOATING:
            sums.append(_float_sums(rule.position, table[rule.column], keys))
    units = _merge_units(pa.table({**keys, **columns}), list(keys))
    return Partial(tuple(by), units, _grouped_sums(sums, keys), values)


def fails_mask(table: pa.Table, rules: Sequence[CompiledRule]) -> pa.Array:
    """Return for each row an int64 whose bit `rule.bit` is set where the row fails that rule.

    Only critical row rules have a bit: a row that fails no such rule is never withheld (SEMANTICS 11.3, 11.4). The
    fewer masks there are, the fewer files a task stages.
    """
    mask = np.zeros(table.num_rows, np.int64)
    for rule in rules:
        if rule.bit is not None:
            failed = _status(rule, table).to_numpy() == UNEXPECTED
            mask |= failed.astype(np.int64) << rule.bit
    return pa.array(mask)


def _status(rule: CompiledRule, table: pa.Table) -> pa.ChunkedArray:
    status = table[rule.hidden]
    if status.null_count:
        raise GateError(f"rule {rule.name} was not evaluated for {status.null_count} rows")
    return status


def _numbers(rule: CompiledRule, table: pa.Table) -> Mapping[str, pa.ChunkedArray]:
    """Return what is added up, or compared, of each row for a rule, by `<what>.<how>`."""
    if rule.kind is Kind.ROW:
        status = _status(rule, table)
        return {
            "unexpected.sum": pc.equal(status, UNEXPECTED).cast(pa.int64()),
            "considered.sum": pc.not_equal(status, NOT_COUNTED).cast(pa.int64()),
        }
    if rule.column is None:
        return {}
    column = table[rule.column]
    measures = {"considered.sum": column.is_valid().cast(pa.int64())}
    if rule.type in _SUMS:
        return {**measures, **_sum_parts(rule.column_type.family, column)}
    if rule.column_type.family is Family.FLOATING:  # apart, because Arrow passes over NaN and Spark puts it on top
        measures["nan.sum"] = _counted(pc.is_nan(column))
    return {**measures, f"value.{'min' if rule.type == _LEAST else 'max'}": column}


def _counted(test: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(test, fill_value=False).cast(pa.int64())


def _sum_parts(family: Family, column: pa.ChunkedArray) -> Mapping[str, pa.ChunkedArray]:
    if family is Family.DECIMAL:
        return {"value.sum": column.cast(pa.decimal256(_DIGITS, column.type.scale))}
    if family is Family.INTEGRAL:
        wide = column.cast(pa.int64())
        # Halves of 32 bits, because the sum of a few large longs leaves 64 bits.
        return {"high.sum": pc.shift_right(wide, 32), "low.sum": pc.bit_wise_and(wide, 0xFFFF_FFFF)}
    return {
        "nan.sum": _counted(pc.is_nan(column)),
        "above.sum": _counted(pc.equal(column, float("inf"))),
        "below.sum": _counted(pc.equal(column, float("-inf"))),
    }


def _float_sums(position: int, column: pa.ChunkedArray, keys: dict[str, pa.ChunkedArray]) -> pa.Table:
    finite = pc.fill_null(pc.is_finite(column), fill_value=False)
    kept = pa.table({**keys, "value": column}).filter(finite)
    places, high, low = bins_of(kept["value"].to_numpy().astype(np.float64))
    rule = np.full(kept.num_rows, position, np.int16)
    added = {"rule": rule, "bin": places.astype(np.int16), "high": high, "low": low}
    return pa.table({**{k: kept[k] for k in keys}, **added})


def _grouped_sums(tables: list[pa.Table], keys: dict[str, pa.ChunkedArray]) -> pa.Table:
    if not tables:
        empty = {"rule": pa.int16(), "bin": pa.int16(), "high": pa.int64(), "low": pa.int64()}
        return pa.schema([*((k, v.type) for k, v in keys.items()), *empty.items()]).empty_table()
    return _added(pa.concat_tables(tables), [*keys, "rule", "bin"], _SUM_VALUES)


def _value_counts(column: pa.ChunkedArray, keys: dict[str, pa.ChunkedArray]) -> pa.Table:
    """Count each distinct non-null value; NaN equals NaN and 0.0 equals -0.0, as in Spark's grouping."""
    kept = pa.table({**keys, "value": normalise(column)}).filter(column.is_valid())
    grouped = kept.group_by([*keys, "value"], use_threads=False).aggregate([([], "count_all")])
    return pa.table({**{k: grouped[k] for k in keys}, "value": grouped["value"], "count": grouped["count_all"]})
