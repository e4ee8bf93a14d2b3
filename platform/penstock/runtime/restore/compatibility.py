"""Compare a job's code with the checkpoint from which it resumes: what is kept, new, dropped, or does not fit (F51).

Pure. There is one comparison: `penstock diff` shows its findings, and the first finding that refuses ends a start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.recovery import Recovered
from penstock.errors import PartitionsChanged, PenstockError, StepsChanged
from penstock.graph.durations import Duration
from penstock.graph.graph import JobGraph
from penstock.graph.join_static import StaticJoinNode
from penstock.graph.nodes import CheckNode, FilterNode, Node, SelectNode, SourceNode, WithColumnsNode
from penstock.graph.steps import StepNode
from penstock.operators.schema_evolution import Evolution

__all__ = ["Compatibility", "Finding", "Kind", "compare", "described", "lost_rows", "refuse", "when_left"]


class Kind(Enum):
    """The subject of a finding."""

    STEP = "step"
    SOURCE = "source"
    SINK = "sink"
    FILTER = "filter"
    SELECT = "select"
    WITH_COLUMNS = "with_columns"
    CHECK = "check"
    JOIN_STATIC = "join_static"


class Compatibility(Enum):
    """The fate of a step's state, of a source's position, or of a sink."""

    KEPT = "kept"
    """It resumes."""
    NEW = "new"
    """The checkpoint does not know it."""
    DROPPED = "dropped"
    """The checkpoint has state of a step, or a position of a source, that the job no longer has."""
    CHANGED = "changed"
    """It resumes, with other settings than those of the checkpoint."""
    GONE = "gone"
    """The checkpoint knows a sink that the job no longer has."""
    INCOMPATIBLE = "incompatible"
    """The job has it, in a form that cannot resume."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The fate of one step, source or sink; `says` are clauses, `refusal` is what a start would raise."""

    kind: Kind
    name: str
    fate: Compatibility
    says: tuple[str, ...] = ()
    refusal: PenstockError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        refused = None if self.refusal is None else {"code": self.refusal.code, "what": self.refusal.what}
        fate = {"kind": self.kind.value, "name": self.name, "fate": self.fate.value}
        return {**fate, "says": list(self.says), "refused": refused}


Described = Mapping[str, Mapping[str, str]]
"""For each source, filter, select, check and step, as `kind name`, its settings in words."""
Stored = Evolution | PenstockError
"""How the state of a step differs from what its code keeps, or why it cannot be read."""


def compare(
    graph: JobGraph,
    recovered: Recovered,
    stored: Mapping[str, Stored],
    *,
    drop: Collection[str] = (),
    unfit: Mapping[str, PenstockError] | None = None,
    unread: Mapping[str, PenstockError] | None = None,
    described: Described | None = None,
) -> list[Finding]:
    """Return what becomes of each step, source and sink of the job and of the checkpoint, and what else has changed.

    Args:
        graph: The job's graph.
        recovered: The state of the log.
        stored: For each step of the job that has state, how that differs from the step, or why it cannot be read.
        drop: The names of steps whose state is dropped, and of sources whose position is.
        unfit: The sinks that do not take the rows they would get, each with its error.
        unread: The sources that cannot be read further, each with its error.
        described: The current settings of the job.
    """
    findings = [
        *_steps(graph, recovered, stored, drop),
        *_sources(graph, recovered, unread or {}, drop),
        *_sinks(graph, recovered, unfit or {}),
    ]
    before = recovered.committed_by.described if recovered.committed_by is not None else {}
    return list(_with_settings(findings, before, described)) if before and described is not None else findings


def refuse(findings: Iterable[Finding]) -> None:
    """Raise what the first finding that refuses says."""
    for finding in findings:
        if finding.refusal is not None:
            raise finding.refusal


def lost_rows(graph: JobGraph, recovered: Recovered) -> Iterator[Finding]:
    """Yield the sinks that are gone and may not show the rows of the last Commit: a start without them loses those."""
    return (finding for finding in _sinks(graph, recovered, {}) if finding.fate is Compatibility.GONE)


def when_left(recovered: Recovered) -> Recovered:
    """Return where the job will stand when the driver that runs has finished its batch and left on purpose."""
    last = recovered.last_published_commit
    shown = {} if last is None else dict.fromkeys(last.staged, last.batch)
    return replace(recovered, pending=None, published={**recovered.published, **shown})


def _with_settings(findings: Iterable[Finding], before: Described, now: Described) -> Iterator[Finding]:
    """Yield the findings with what settings were before, then filters, columns and checks that have changed.

    Changed filters and checks apply from the next batch; nothing that was decided changes.
    """
    for finding in findings:
        name = f"{finding.kind.value} {finding.name}"
        changed = changes_of(before[name], now[name]) if name in before and name in now else ()
        yield replace(finding, says=(*finding.says, *changed))
    for name in dict.fromkeys([*now, *before]):
        kind, _, of = name.partition(" ")
        if kind in (Kind.STEP.value, Kind.SOURCE.value) or before.get(name) == now.get(name):
            continue
        fate = Compatibility.CHANGED if name in now else Compatibility.GONE
        says = changes_of(before.get(name, {}), now.get(name, {}))
        yield Finding(Kind(kind), of, fate if name in before else Compatibility.NEW, says)


# --- steps ---------------------------------------------------------------------------------------


def _steps(
    graph: JobGraph, recovered: Recovered, stored: Mapping[str, Stored], drop: Collection[str]
) -> Iterator[Finding]:
    state = recovered.commit.state if recovered.commit is not None else {}
    for node in graph.steps:
        name = node.name
        if name in state:
            finding = _known(node, recovered, stored.get(name, Evolution()))
        else:
            finding = _without_state(node, recovered)
        if name in drop:
            problem = f"step {name!r} is to be dropped and the job still has it; under another name it starts empty"
            finding = replace(finding, refusal=StepsChanged(problem, where=str(node.site)))
        yield finding
    known = [node.name for node in graph.steps]
    for step in state:
        if step not in known:
            yield _dropped(step, known, let_go=step in drop)


def _known(node: StepNode, recovered: Recovered, stored: Stored) -> Finding:
    """Return what becomes of state that is there."""
    kept = (recovered.partitions or {}).get(node.name, node.partitions)
    if isinstance(stored, PenstockError):
        unread = f"its state cannot be read: {stored.what}"
        return Finding(Kind.STEP, node.name, Compatibility.INCOMPATIBLE, (unread,), stored)
    says = stored.refused
    refusal: PenstockError | None = None
    if says:
        problem = f"step {node.name!r} cannot resume from its state: {'; '.join(says)}"
        refusal = StepsChanged(problem, where=str(node.site))
    if kept != node.partitions:
        difference = f"{node.partitions} partitions and its state has {kept}"
        says = (f"it has {difference}, which a restore with --partitions {node.partitions} changes", *says)
        refusal = PartitionsChanged(f"step {node.name!r} has {difference}", where=str(node.site))
    if refusal is not None:
        return Finding(Kind.STEP, node.name, Compatibility.INCOMPATIBLE, says, refusal)
    refusal = _unforeseen(node.name, Kind.STEP, recovered)
    return Finding(Kind.STEP, node.name, Compatibility.KEPT, stored.accepted, refusal)


def _without_state(node: StepNode, recovered: Recovered) -> Finding:
    """Return what becomes of a step that keeps nothing yet, or that the checkpoint does not know."""
    fate = Compatibility.NEW
    if recovered.commit is not None and node.name in recovered.commit.watermarks_out:
        fate, says = Compatibility.KEPT, "it has no state yet"
    elif node.spec.initial is None:
        says = "it starts empty"
    elif recovered.commit is None:
        says = "it starts with its initial state"
    else:
        says = "it starts empty: initial= is loaded before a job's first batch only"
    return Finding(Kind.STEP, node.name, fate, (says,), _unforeseen(node.name, Kind.STEP, recovered))


def _dropped(step: str, known: list[str], *, let_go: bool) -> Finding:
    if let_go:
        says = "its state is dropped with the next batch; a restore to an earlier batch brings it back"
        return Finding(Kind.STEP, step, Compatibility.DROPPED, (says,))
    problem = f"the checkpoint has state of step {step!r}, and the job has only {', '.join(known) or 'none'}"
    says = f"its state would be lost; --drop {step} lets it go"
    return Finding(Kind.STEP, step, Compatibility.DROPPED, (says,), StepsChanged(problem))


# --- sources -------------------------------------------------------------------------------------


def _sources(
    graph: JobGraph, recovered: Recovered, unread: Mapping[str, PenstockError], drop: Collection[str]
) -> Iterator[Finding]:
    """Yield what becomes of sources: a position is kept by name, and would be lost without a word."""
    read = recovered.commit.sources if recovered.commit is not None else {}
    fixed = recovered.pending.ranges if recovered.pending is not None else {}
    names = [node.name for node in graph.sources]
    for name in names:
        refusal = _unforeseen(name, Kind.SOURCE, recovered)
        if name in drop:
            refusal = StepsChanged(f"source {name!r} is to be dropped and the job still has it")
        if name in unread:
            yield Finding(Kind.SOURCE, name, Compatibility.INCOMPATIBLE, (unread[name].what,), unread[name])
        elif name in read:
            ended = ("it was read to its end, or drained",) if read[name].ended else ()
            yield Finding(Kind.SOURCE, name, Compatibility.KEPT, ended, refusal)
        else:
            yield Finding(Kind.SOURCE, name, Compatibility.NEW, ("it is read from its beginning",), refusal)
    for name in dict.fromkeys([*read, *fixed]):
        if name not in names:
            yield _source_dropped(name, names, recovered, let_go=name in drop)


def _source_dropped(name: str, names: list[str], recovered: Recovered, *, let_go: bool) -> Finding:
    pending = recovered.pending
    if not let_go:
        problem = (
            f"the checkpoint has read source {name!r} up to a position, and the job has only {', '.join(names)}; "
            f"under another name a source is read from its beginning. --drop {name} lets the position go"
        )
        says = f"its position would be lost; --drop {name} lets it go"
        return Finding(Kind.SOURCE, name, Compatibility.DROPPED, (says,), StepsChanged(problem))
    if pending is not None and name in pending.ranges:  # a batch has the ranges that it began with (SEMANTICS 1.2)
        before = "empty" if recovered.commit is None else f"batch={recovered.commit.batch}"
        problem = (
            f"batch {pending.batch} was begun with source {name!r}, which the job no longer has; start the job once as "
            f"it was, or give that batch up with --from {before} --drop {name}"
        )
        says = f"batch {pending.batch} was begun with it"
        return Finding(Kind.SOURCE, name, Compatibility.DROPPED, (says,), StepsChanged(problem))
    says = "its position is dropped with the next batch; if it comes back, it is read from its beginning"
    return Finding(Kind.SOURCE, name, Compatibility.DROPPED, (says,))


def _unforeseen(name: str, kind: Kind, recovered: Recovered) -> PenstockError | None:
    """Return why a batch whose Offsets are fixed cannot be run with this source or step: they know nothing of it."""
    pending = recovered.pending
    if pending is None:
        return None
    if name in (pending.ranges if kind is Kind.SOURCE else pending.watermarks):
        return None
    before = "empty" if recovered.commit is None else f"batch={recovered.commit.batch}"
    return StepsChanged(
        f"batch {pending.batch} was begun and knows nothing of {kind.value} {name!r}; start the job once as it was, or "
        f"give that batch up with --from {before}"
    )


# --- sinks ---------------------------------------------------------------------------------------


def _sinks(graph: JobGraph, recovered: Recovered, unfit: Mapping[str, PenstockError]) -> Iterator[Finding]:
    """Yield what becomes of sinks; one may go once its last rows are known to be published, as a Release says."""
    names = [node.name for node in graph.sinks]
    known = _sinks_of(recovered)
    for name in names:
        if name in unfit:
            yield Finding(Kind.SINK, name, Compatibility.INCOMPATIBLE, (unfit[name].what,), unfit[name])
        else:
            yield Finding(Kind.SINK, name, Compatibility.KEPT if name in known else Compatibility.NEW)
    for name in known:
        if name not in names:
            lost = recovered.to_publish(name)
            yield _gone(name, lost if lost is not None and lost.staged.get(name) else None)


def _gone(name: str, last: Commit | None) -> Finding:
    """Return that a sink is gone; `last` is the Commit whose rows it may not show yet."""
    if last is None:
        return Finding(Kind.SINK, name, Compatibility.GONE, ("what it shows stays",))
    rows = sum(file.rows for file in last.staged[name])
    problem = (
        f"batch {last.batch} has {rows:,} rows for sink {name!r}, which may not have been published, and the "
        "job has no such sink any more; start it once as it was and stop it, or let them go with "
        f"`penstock sinks JOB skip {name}`"
    )
    says = (f"{rows:,} rows of batch {last.batch} may not have been published",)
    return Finding(Kind.SINK, name, Compatibility.GONE, says, StepsChanged(problem))


def _sinks_of(recovered: Recovered) -> list[str]:
    """Return the sinks that the log tells of, sorted."""
    return sorted({*recovered.published}.union(*((*c.staged, *c.held, *c.published) for c in recovered.kept)))


# --- settings that the state does not show --------------------------------------------------------


def described(graph: JobGraph, suites: Mapping[str, Any], tables: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the settings of a job. Kept in the Takeover of a driver.

    Args:
        graph: The job's graph.
        suites: For each check, the path or the dict that it runs.
        tables: For each join_static, the columns of its table in words.
    """
    described_steps: dict[str, dict[str, str]] = {}
    numbers: dict[str, int] = {}
    for node in graph.nodes:
        for kind, settings in _settings(node, suites, tables):
            name = getattr(node, "name", None)
            if name is None:
                name = numbers[kind] = numbers.get(kind, 0) + 1
            described_steps[f"{kind} {name}"] = settings
    return described_steps


def changes_of(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return in words how settings differ."""
    return tuple(
        f"{name} was {before.get(name, 'none')} and is {now.get(name, 'none')}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    )


def _settings(node: Node, suites: Mapping[str, Any], tables: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    match node:
        case SourceNode():
            bounds = ((n, getattr(node, n)) for n in ("max_out_of_order", "idle_after", "max_future", "align"))
            texts = {name: str(Duration(micros)) for name, micros in bounds if micros is not None}
            yield "source", {"event_time": node.event_time, **texts} if node.event_time is not None else {}
        case FilterNode(predicate=predicate):
            yield "filter", {"predicate": predicate}
        case SelectNode(expressions=expressions):
            yield "select", {"columns": ", ".join(expressions)}
        case WithColumnsNode(columns=columns):
            yield "with_columns", {"columns": ", ".join(f"{name} = {sql}" for name, sql in columns.items())}
        case StaticJoinNode():
            yield "join_static", {**node.settings(), "columns": tables[node.name]}
        case StepNode(spec=spec):
            settings = spec.settings()
            if settings is not None:
                yield "step", dict(settings)
        case CheckNode(name=name):
            table = (node.on_table_fail or node.on_fail).value
            yield "check", {"on_fail": node.on_fail.value, "on_table_fail": table, "suite": _digest(suites.get(name))}


def _digest(suite: Any) -> str:
    """Return what tells one suite from another: a few characters of the digest of what it says."""
    content = json.loads(Path(suite).read_text()) if isinstance(suite, str | Path) else suite
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
