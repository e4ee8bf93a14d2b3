"""Decide a batch: from what the tasks reported to the fields of its Commit. Pure apart from asking the gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.entries import Commit, Offsets, SourceProgress, StagedFile
from penstock.errors import GateStopped
from penstock.graph.nodes import CheckNode
from penstock.quality.compile import Verdict
from penstock.quality.policy import Disposition, disposition
from penstock.runtime.engine import Engine
from penstock.runtime.outcome import Outcome
from penstock.sources.base import Position
from penstock.time.watermarks import SourceTime, progressed, source_watermark, step_watermark

__all__ = ["Decision", "decide"]


@dataclass(kw_only=True)
class Decision:
    """Hold the fields of a Commit, and the checks that stop the job instead."""

    fields: dict[str, Any]
    stopped: dict[str, Verdict] = field(default_factory=dict)

    def stop_if_gate_says_so(self) -> None:
        """Raise GateStopped where a check with STOP failed: there will be no Commit."""
        for check, verdict in self.stopped.items():
            failed = [r.rule for r in verdict.results if not r.success]
            raise GateStopped(
                f"check {check!r} failed in batch {self.fields['batch']}: {', '.join(failed)}",
                check=check,
                batch=self.fields["batch"],
            )


def decide(
    engine: Engine,
    offsets: Offsets,
    before: Commit | None,
    outcome: Outcome,
    *,
    floor: int,
    gates: Mapping[int, str],
) -> Decision:
    """Return what Commit N says.

    `gates` are a person's words on batches that a gate stopped, by batch id: publish, drop or hold.
    """
    sources = {s.name: _source(engine, s.name, offsets, before, outcome) for s in engine.graph.sources}
    actions, verdicts = _judge(engine, outcome, gates.get(offsets.batch))
    staged, held = _sort_files(engine, outcome, actions)
    state = {step: dict(refs) for step, refs in before.state.items()} if before else {}
    for step, refs in outcome.state.items():
        state[step] = {**state.get(step, {}), **refs}
    fields = {
        "batch": offsets.batch,
        "time": offsets.time,
        "zero": int(str(offsets.settings["zero"])),
        "state": state,
        "staged": staged,
        "held": held,
        "verdicts": verdicts,
        "sources": sources,
        "watermarks_in": {step: marks.close for step, marks in offsets.watermarks.items()},
        "watermarks_out": _watermarks(engine, sources, before),
        "due": outcome.due,
        "accounting": outcome.accounting,
        "written": outcome.written,
        "floor": floor,
    }
    stopped = {check: verdict for (check, _), (act, verdict) in actions.items() if act.stop}
    return Decision(fields=fields, stopped=stopped)


def _source(engine: Engine, name: str, offsets: Offsets, before: Commit | None, outcome: Outcome) -> SourceProgress:
    node = next(s for s in engine.graph.sources if s.name == name)
    known = before.sources.get(name) if before is not None else None
    ranges: Mapping[str, Any] = offsets.ranges[name]
    names = engine.partitions(name, ranges["span"]) if ranges["span"] is not None else ()

    def by_name(counts: Mapping[str, int]) -> dict[str, int]:
        return {names[int(index)]: n for index, n in counts.items()}

    return SourceProgress(
        position=dict(ranges["end"]),
        partitions=progressed(
            known.partitions if known is not None else {},
            names,
            by_name(outcome.highest.get(name, {})),
            by_name(outcome.rows.get(name, {})),
            time=offsets.time,
            idle_after=node.idle_after,
        ),
        ended=engine.ended(name, ranges["end"]),
    )


def _watermarks(engine: Engine, sources: Mapping[str, SourceProgress], before: Commit | None) -> dict[str, int | None]:
    marks = {}
    for node in engine.graph.sources:
        progress = sources[node.name]
        bounds = SourceTime(
            max_out_of_order=node.max_out_of_order,
            idle_after=node.idle_after,
            closes_at_end=engine.closes_at_end(node.name),
            said=_said(progress.position),
        )
        marks[node.name] = source_watermark(progress, bounds)
    return {
        window.name: step_watermark(
            before.watermarks_out.get(window.name) if before is not None else None,
            [marks[s.name] for s in engine.graph.sources_of(window)],
        )
        for window in engine.graph.windows
    }


def _said(position: Position) -> int | None:
    said = position.get("watermark")
    return None if said is None else int(said)


Units = dict[tuple[str, int | None], tuple[Disposition, Verdict]]


def _judge(engine: Engine, outcome: Outcome, said: str | None) -> tuple[Units, list[dict[str, Any]]]:
    """Return what to do with each unit of each check, and the verdicts as JSON."""
    units: Units = {}
    told = []
    for (check, unit), partials in outcome.measured.items():
        node = _check(engine, check)
        verdict = engine.decide(check, partials)
        act = disposition(verdict, node.on_fail, node.on_table_fail, override=said)
        units[check, unit] = (act, verdict)
        told.append({"check": check, "unit": unit, "action": act.said, **verdict.to_json()})
    return units, told


def _sort_files(
    engine: Engine, outcome: Outcome, units: Units
) -> tuple[dict[str, list[StagedFile]], dict[str, list[StagedFile]]]:
    """Return the files to publish and those to hold, and count rows by their fate (SEMANTICS 2.10, 11.3)."""
    staged: dict[str, list[StagedFile]] = {}
    held: dict[str, list[StagedFile]] = {}
    counted: set[str] = set()
    for (sink, check), files in outcome.staged.items():
        if check is None:
            staged[sink] = [file for file, _ in files]
            continue
        counts = outcome.accounting[f"check:{check}"]
        guarded = sink in engine.guarded_sinks(check)
        first = guarded and check not in counted
        holds = any(act.hold for (name, _), (act, _) in units.items() if name == check)
        for file, unit in files:
            act, _ = units.get((check, unit), (None, None))
            withheld = act is not None and bool(set(file.fails) & set(act.withheld))
            fate = _fate(withheld=withheld, holds=holds, quarantines=act is not None and act.quarantine)
            if first:
                counts[fate] = counts.get(fate, 0) + file.rows
            if fate == "held":
                held.setdefault(sink, []).append(file)
            elif guarded is (fate == "published"):
                if guarded or fate == "quarantined":
                    staged.setdefault(sink, []).append(file)
        if first:
            counted.add(check)
    return staged, held


def _fate(*, withheld: bool, holds: bool, quarantines: bool) -> str:
    if holds:
        return "held"
    if not withheld:
        return "published"
    return "quarantined" if quarantines else "dropped"


def _check(engine: Engine, name: str) -> CheckNode:
    return next(c for c in engine.graph.checks if c.name == name)
