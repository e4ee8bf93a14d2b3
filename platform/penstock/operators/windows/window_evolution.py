"""Compare the windows that a step keeps with those that its state was written for (schema evolution on restart)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.graph.durations import Duration
from penstock.graph.windows import Extent, TimeWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.aggregates.naming import (
    PARTIALS,
    PARTS,
    aggregates_in,
    cell_of,
    old_names,
    partial_name,
    plain_sql,
)
from penstock.operators.schema_evolution import Evolution, widens
from penstock.operators.windows.partials import PartialLayout
from penstock.operators.windows.stored_partials import StoredPartials

__all__ = ["changed_aggregates", "changed_windows", "kept_now", "names_in", "reads", "window_in"]

_OF = " of "
"""What precedes, in a layout, the type of the values that are counted."""
_LAYOUT = re.compile(
    r"\[(.*?)\] (.*) in (growing )?windows of (\d+) us every (\d+) us from (-?\d+)(?: until (\d+) us after their end)?"
    r"(?:, with early panes of (.*))?",
    re.DOTALL,
)


def kept_now(plan: AggregatePlan) -> list[tuple[str, str]]:
    """Return each aggregate and the type of its result, in words. One that counts values has their type as well."""
    kept = (a.values_kept for a in plan.aggregates)
    results = (
        f"{a.result}{_OF}{k}" if k is not None else str(a.result) for a, k in zip(plan.aggregates, kept, strict=True)
    )
    names = (f"{a.kind.value}({plain_sql(a.label or '')})" for a in plan.aggregates)
    return list(zip(names, results, strict=True))


def names_in(layout: str) -> dict[str, str]:
    """Return today's names of partials that an older version named by place, from its layout."""
    match = _LAYOUT.fullmatch(layout)
    return {} if match is None else old_names(aggregates_in(match[2]))


def window_in(layout: str) -> TimeWindow | None:
    """Return the windows that a layout names, None for a layout of another step."""
    match = _LAYOUT.fullmatch(layout)
    if match is None:
        return None
    size, every, offset, lateness = (int(match[number] or 0) for number in (4, 5, 6, 7))
    extent = Extent.GROWING if match[3] else Extent.FIXED
    return TimeWindow(size=size, every=every, offset=offset, extent=extent, allowed_lateness=lateness)


def reads(layout: PartialLayout, facts: Mapping[str, Any], was: str | None) -> StoredPartials:
    """Return what reads state with these facts, which was written as `was` says; None where nothing was."""
    match = None if was is None else _LAYOUT.fullmatch(was)
    known: Mapping[str, str] | None = facts.get(PARTIALS)
    old = names_in(was or "") if known is None else known
    return StoredPartials.of_state(layout, facts, None if match is None else match[2], old)


def changed_windows(was: str, now: str, read: StoredPartials, stored: pa.Schema | None) -> Evolution:
    """Return how two layouts differ; `stored` are the columns that were written, None where there are no rows.

    Keys and windows are to be the same, and be forgotten no later: what was forgotten cannot be revised. Aggregates may
    be others: those that are new count from now on.
    """
    if was == now:
        return Evolution()
    old, new = _LAYOUT.fullmatch(was), _LAYOUT.fullmatch(now)
    if old is None or new is None:
        return Evolution(refused=(f"it keeps {now}, and its state is {was}",))
    parts = (("keys", f"[{old[1]}]", f"[{new[1]}]"), ("windows", _window(old), _window(new)))
    refused = [f"its {part} were {before} and are {after}" for part, before, after in parts if before != after]
    was_kept, is_kept = (Duration(int(layout[7] or 0)) for layout in (old, new))
    if is_kept.micros > was_kept.micros or bool(is_kept.micros) != bool(was_kept.micros):
        refused.append(f"its allowed lateness was {was_kept} and is {is_kept}, and windows are forgotten already")
    if old[8] != new[8]:
        before_panes, after_panes = (
            f"early panes of {layout[8]}" if layout[8] else "no early panes" for layout in (old, new)
        )
        refused.append(f"it had {before_panes} and has {after_panes}, which are kept in another way")
    of_aggregates = changed_aggregates(old[2], read, stored)
    if refused or of_aggregates.refused:
        return Evolution(refused=(*refused, *of_aggregates.refused))
    sooner = [f"windows are forgotten {is_kept} after their end, not {was_kept}"] if is_kept != was_kept else []
    return Evolution(accepted=(*sooner, *of_aggregates.accepted))


def changed_aggregates(was: str, read: StoredPartials, stored: pa.Schema | None) -> Evolution:
    """Return how the aggregates that a layout names differ from those of today; new ones count from now on."""
    before = [(f"{kind.value}({plain_sql(sql)})", result) for kind, sql, result in aggregates_in(was)]
    plan = read.layout.plan
    refused = _without_rows(read, stored) or _other_values(dict(before), plan) or [*_unfit(read, stored)]
    return Evolution(refused=tuple(refused)) if refused else Evolution((), tuple(_aggregates(before, read, stored)))


def _without_rows(read: StoredPartials, stored: pa.Schema | None) -> list[str]:
    """Return that open windows would lack rows, where a function is to get all of them and none were kept."""
    if stored is None or not read.layout.plan.keeps_rows or read.new.isdisjoint(read.layout.plan.item_lists):
        return []
    return ["it is to call a function with all rows of a window, and its state has aggregates of them only"]


def _other_values(before: Mapping[str, str], plan: AggregatePlan) -> list[str]:
    """Return the aggregates that counted values of another type, which none of today's would be known as."""
    refused = []
    for aggregate, result in dict(kept_now(plan)).items():
        was, now = before.get(aggregate, result).partition(_OF)[2], result.partition(_OF)[2]
        if was != now:
            refused.append(f"{aggregate} counted values of {was}, and is to count those of {now}")
    return refused


def _unfit(read: StoredPartials, stored: pa.Schema | None) -> Iterator[str]:
    """Yield the partials whose values may not fit the type that they are to have."""
    known = {f.name: f.type for f in read.layout.plan.fields}
    lists = read.layout.plan.item_lists if read.layout.plan.keeps_rows else ()
    for column in stored or ():
        name = read.old.get(column.name, column.name)
        kind = known.get(name)
        fits = _holds if name in lists else widens
        if kind is not None and read.sources.get(name) == (name,) and not fits(column.type, kind):
            yield f"{column.name} of its aggregates was {column.type} and is {kind}"


def _holds(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether lists of rows have a place for every value: columns may be new, wider, and in another order."""
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _holds(old.value_type, new.value_type)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        names = {field.name for field in new}
        return all(field.name in names and _holds(field.type, new.field(field.name).type) for field in old)
    return widens(old, new)


def _aggregates(before: list[tuple[str, str]], read: StoredPartials, stored: pa.Schema | None) -> Iterator[str]:
    """Yield what becomes of aggregates that are not as they were."""
    plan = read.layout.plan
    known, kept = dict(before), kept_now(plan)
    missing = set() if stored is None else read.new
    for (aggregate, result), bound in zip(kept, plan.aggregates, strict=True):
        parts = PARTS[cell_of(bound.kind, result)] if bound.expression else ()
        own = {partial_name(part, bound.label or "") for part in parts}
        if aggregate not in known and own & missing:
            yield f"{aggregate} is new, and counts the rows that come from now on, in windows that are open as well"
        elif aggregate not in known:
            yield f"{aggregate} is new, and goes on from what is kept"
        elif known[aggregate] != result:
            yield f"{aggregate} was {known[aggregate]} and is {result}"
    for aggregate in sorted(known.keys() - {name for name, _ in kept}):
        yield f"{aggregate} is gone"


def _window(layout: re.Match[str]) -> str:
    size, every, offset = (Duration(int(layout[number])) for number in (4, 5, 6))
    begin = f" from {offset}" if offset.micros else ""
    grow = "growing " if layout[3] else ""
    return f"{grow}of {size} every {every}{begin}"
