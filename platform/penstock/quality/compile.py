"""Compile a suite into a gate: SQL for the row rules, mergeable numbers for the table rules (SEMANTICS 11, DESIGN 10).

How a batch uses a gate, all inside its one Spark job:

1. Spark evaluates `gate.row_columns()` beside the rows, as hidden columns.
2. Each task calls `gate.measure(rows, by)` and sends the `Partial` with its receipt, and stages its rows in files by
   `fails_mask(rows, gate)`.
3. The driver calls `gate.decide(partials)` or `gate.decide_units(partials)`; `penstock.quality.policy` says what
   becomes of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import GateError, PenstockError, SuiteError, UnknownName
from penstock.quality import measure as measuring
from penstock.quality.arguments import nearest
from penstock.quality.measure import Partial, key_names, merge_partials
from penstock.quality.predicates import CompiledRule, Family, column_type, row_expression, text_literal
from penstock.quality.suite import Kind, Rule, Severity, Suite
from penstock.quality.verdict import Status, Verdict, judge

__all__ = ["CompiledGate", "CompiledRule", "compile_suite", "fails_mask"]

_MAX_BITS = 63  # of an int64 mask, without its sign

_NUMBERS = frozenset({Family.INTEGRAL, Family.FLOATING, Family.DECIMAL})
_MOMENTS = frozenset({Family.DATE, Family.TIMESTAMP, Family.TIMESTAMP_NTZ})


@dataclass(frozen=True, slots=True)
class CompiledGate:
    """A suite compiled for the columns of one stream; it can be pickled and sent to tasks.

    A gate compiled without columns is not `typed`: it says only that the suite is sound, and using it on rows raises
    GateError.
    """

    name: str
    rules: tuple[CompiledRule, ...]
    typed: bool

    def row_columns(self) -> list[tuple[str, str]]:
        """Return (hidden column, Spark SQL) for each row rule.

        The SQL gives a TINYINT: 0 as expected, 1 unexpected, 2 not counted because the value is null.
        """
        with _closed(self):
            return [(r.hidden, r.expression) for r in self.rules if r.expression is not None]

    def probes(self) -> list[tuple[str, str, str]]:
        """Return (rule name, place, constant SQL) that Spark must be able to compute before the job starts.

        Only Java knows whether a regular expression is one; run on no rows, the SQL raises where it is not.
        """
        return [(r.name, r.where, f"'' RLIKE {text_literal(r.regex)}") for r in self.rules if r.regex]

    def measure(self, table: pa.Table, by: Sequence[str] = ()) -> Partial:
        """Return what the verdict needs of one task's rows, which hold the hidden columns.

        `by` names the columns that tell units apart (a window's start and end); without it all rows are one unit.
        Called in tasks, once a check, also without rows.
        """
        with _closed(self):
            return measuring.measure(self.rules, table, by)

    def decide(self, partials: Iterable[Partial]) -> Verdict:
        """Return the verdict over the rows of all tasks, measured without `by`; EMPTY when there was no row."""
        verdicts = self.decide_units(partials)
        if not verdicts:
            return Verdict(status=Status.EMPTY, rows=0)
        if verdicts[0][0]:
            raise GateError(f"gate {self.name} was measured by units and must be decided by units")
        return verdicts[0][1]

    def decide_units(self, partials: Iterable[Partial]) -> list[tuple[dict[str, Any], Verdict]]:
        """Return each unit that holds rows, as its values of the `by` columns, with its verdict, in their order."""
        with _closed(self):
            merged = merge_partials(partials)
            return [] if merged is None else list(_judged(self, merged))

    def rules_of(self, mask: int) -> tuple[str, ...]:
        """Return the names of the rules whose bits a row's mask holds."""
        return tuple(r.name for r in self.rules if r.bit is not None and mask >> r.bit & 1)

    @property
    def certain(self) -> int:
        """Return the bits of the rules that fail wherever one row fails them: no `mostly` forgives it."""
        return sum(1 << r.bit for r in self.rules if r.bit is not None and r.mostly == 1)


def compile_suite(suite: Suite, columns: Mapping[str, str] | None) -> CompiledGate:
    """Return the gate of a suite for columns given as name to Spark type, None while they are not known.

    Raises UnknownName for a column that is not there, SuiteError where GX on Spark could not judge its type.
    """
    rules = [_compiled(suite.name, rule, columns) for rule in suite.rules]
    deciding = [r for r in rules if r.kind is Kind.ROW and r.severity is Severity.CRITICAL]
    if len(deciding) > _MAX_BITS:
        raise SuiteError(
            f"suite {suite.name!r} has {len(deciding)} critical row rules, more than the {_MAX_BITS} that a mask holds",
            where=deciding[_MAX_BITS].where,
        )
    bits = {rule.position: bit for bit, rule in enumerate(deciding)}
    with_bits = tuple(replace(rule, bit=bits.get(rule.position)) for rule in rules)
    return CompiledGate(suite.name, with_bits, columns is not None)


def fails_mask(table: pa.Table, gate: CompiledGate) -> pa.Array:
    """Return for each row an int64 whose bit `rule.bit` is set where the row fails that critical row rule."""
    with _closed(gate):
        return measuring.fails_mask(table, gate.rules)


def _compiled(suite: str, rule: Rule, columns: Mapping[str, str] | None) -> CompiledRule:
    name = f"{suite}:{rule.position}:{rule.type}" + (f"({rule.column})" if rule.column is not None else "")
    compiled = CompiledRule(**asdict(rule), name=name)
    if columns is None or rule.column is None:
        return compiled
    if rule.column not in columns:
        hint = nearest(rule.column, columns)
        raise UnknownName(f"{name} names the missing column {rule.column!r}{hint}", where=rule.where)
    compiled = replace(compiled, column_type=column_type(columns[rule.column]))
    if rule.kind is Kind.TABLE:
        _check_table_type(compiled)
        return compiled
    return replace(compiled, expression=row_expression(compiled))


def _check_table_type(rule: CompiledRule) -> None:
    """Refuse a column type for which GX raises, or answers what nobody means (the sum of timestamps)."""
    column, families = rule.column_type, _NUMBERS
    if rule.type == "expect_column_values_to_be_unique":
        families = frozenset(Family) - {Family.OTHER}
    elif rule.type.startswith(("expect_column_min", "expect_column_max")):
        bounds = [b for b in (rule.min_value, rule.max_value) if b is not None]
        numeric = any(isinstance(b, int | float) for b in bounds)
        families = _NUMBERS if numeric else _MOMENTS if bounds else _NUMBERS | _MOMENTS
    # GX takes the mean of int, bigint, float, double and decimal only.
    narrow = rule.type.startswith("expect_column_mean") and column.name in ("tinyint", "smallint")
    if column.family not in families or narrow:
        wanted = "int or wider" if narrow else " or ".join(sorted(f.value for f in families))
        raise SuiteError(f"{rule.name}: column {rule.column!r} is {column.name} and must be {wanted}", where=rule.where)


def _judged(gate: CompiledGate, merged: Partial) -> Iterator[tuple[dict[str, Any], Verdict]]:
    keys = key_names(merged.by)
    in_order = merged.units.sort_by([(k, "ascending") for k in keys]).to_pylist()
    units = {tuple(row[k] for k in keys): row for row in in_order}
    for row in merged.sums.to_pylist():
        bins = units[tuple(row[k] for k in keys)].setdefault(f"{row['rule']}.bins", [])
        bins.append((row["bin"], row["high"], row["low"]))
    for position, table in merged.values.items():
        for row in _repetitions(table, keys).to_pylist():
            repeated = (row["repeated_sum"], row["count_sum"])
            units[tuple(row[k] for k in keys)][f"{position}.repeated"] = repeated
    for key, numbers in units.items():
        yield dict(zip(merged.by, key, strict=False)), judge(gate.rules, numbers)


def _repetitions(table: pa.Table, keys: list[str]) -> pa.Table:
    counts = table["count"]
    repeated = pc.if_else(pc.greater(counts, 1), counts, 0)
    grouped = table.append_column("repeated", repeated).group_by(keys, use_threads=False)
    return grouped.aggregate([("repeated", "sum"), ("count", "sum")])


@contextmanager
def _closed(gate: CompiledGate) -> Iterator[None]:
    """Turn whatever goes wrong inside a gate into GateError: a gate that fails is not a failed check, and closes."""
    if not gate.typed:
        raise GateError(f"gate {gate.name} was compiled without the types of its columns")
    try:
        yield
    except PenstockError:
        raise
    except Exception as problem:
        raise GateError(f"gate {gate.name} failed: {type(problem).__name__}, {problem}") from problem
