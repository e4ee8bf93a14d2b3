"""Decide a batch: from what the tasks reported to the fields of its Commit. Pure apart from asking the gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.log.entries import HELD_BACK, Commit, Offsets, Requeued, SourceProgress, StagedFile
from penstock.errors import AccountingBroken, GateStopped
from penstock.graph.nodes import CheckNode
from penstock.graph.revision_readers import deletes_retracted
from penstock.quality.policy import Action, Disposition, disposition
from penstock.quality.verdict import Verdict
from penstock.runtime.driver.engine import Engine
from penstock.runtime.driver.next_batch import DRAIN, GONE, REQUEUE
from penstock.runtime.driver.receipts import BatchReceipts, totals
from penstock.runtime.driver.source_alignment import watermark_of
from penstock.runtime.driver.superseded import superseded_before
from penstock.runtime.driver.table_versions import tables_of
from penstock.runtime.driver.watermarks import behind_by, progressed, step_watermark

__all__ = ["CommitDraft", "decide", "watermarks_after"]

Files = dict[str, list[StagedFile]]


@dataclass(kw_only=True)
class CommitDraft:
    """The fields of a Commit, and the checks that stop the job instead."""

    fields: dict[str, Any]
    stopped: dict[str, Verdict] = field(default_factory=dict)

    def stop_if_gate_says_so(self) -> None:
        """Raise GateStopped where a check with STOP failed: there will be no Commit."""
        batch = self.fields["batch"]
        for check, verdict in self.stopped.items():
            failed = ", ".join(verdict.failed_rules)
            raise GateStopped(f"check {check!r} failed in batch {batch}: {failed}", check=check, batch=batch)


def decide(
    engine: Engine, offsets: Offsets, before: Commit | None, outcome: BatchReceipts, *, gates: Mapping[int, str]
) -> CommitDraft:
    """Return what Commit N says, all but the floor and what only the moment of writing knows.

    `gates` are a person's words on batches that a gate stopped, by batch id: publish, drop or hold.
    """
    undone = superseded_before(offsets.batch, before)
    sources = {s.name: _source(engine, s.name, offsets, before, outcome, undone=undone) for s in engine.graph.sources}
    actions, stopped, verdicts = _judge(engine, outcome, gates.get(offsets.batch))
    staged, held = _sort_files(engine, outcome, actions)
    steps = {step.name for step in engine.graph.steps}
    # What is of no step any more was dropped knowingly: a start accepts nothing else.
    state = {step: dict(refs) for step, refs in before.state.items() if step in steps} if before else {}
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
        "watermarks_in": {step: marks.close for step, marks in offsets.watermarks.items() if step in steps},
        "watermarks_out": watermarks_after(engine, sources, before, drained=DRAIN in offsets.settings),
        "due": outcome.due,
        "due_time": outcome.due_time,
        "accounting": outcome.accounting,
        "totals": totals(before.totals if before is not None else {}, outcome),
        "written": outcome.written,
        "load": outcome.load,
        "tables": tables_of(offsets),
        "superseded": undone,
    }
    return CommitDraft(fields=fields, stopped=stopped)


def _source(
    engine: Engine,
    name: str,
    offsets: Offsets,
    before: Commit | None,
    outcome: BatchReceipts,
    *,
    undone: Sequence[Sequence[int]],
) -> SourceProgress:
    node = next(s for s in engine.graph.sources if s.name == name)
    known = before.sources.get(name) if before is not None else None
    ranges: Mapping[str, Any] = offsets.ranges[name]
    reader = engine.source(name)
    names = reader.partitions(ranges["span"]) if ranges["span"] is not None else ()

    def by_name(counts: Mapping[str, int]) -> dict[str, int]:
        return {names[int(index)]: n for index, n in counts.items()}

    after = progressed(
        known.partitions if known is not None else {},
        names,
        by_name(outcome.highest.get(name, {})),
        by_name(outcome.rows.get(name, {})),
        time=offsets.time,
        idle_after=node.idle_after,
        since=_since(offsets),
        held_back=ranges.get(HELD_BACK, ()),
        gone=ranges.get(GONE, ()),
    )
    passed_over = dict(known.passed_over) if known is not None else {}
    if undone and ranges["span"] is not None:  # else no batch had rows in quarantine that this line lacks
        for partition, more in reader.passed_over(ranges["start"], ranges["end"], ranges["span"]).items():
            passed_over[partition] = [*passed_over.get(partition, ()), *map(list, more)]
    return SourceProgress(
        position=dict(ranges["end"]),
        partitions=after,
        ended=reader.ended(ranges["end"]) or DRAIN in offsets.settings or (known is not None and known.ended),
        requeued=_requeued(name, ranges.get(REQUEUE), known, outcome),
        passed_over=passed_over,
    )


def _requeued(
    name: str, sent: Mapping[str, Any] | None, known: SourceProgress | None, outcome: BatchReceipts
) -> Requeued | None:
    """Return how far a quarantine was sent again; raises AccountingBroken where a row of the file was not counted."""
    if sent is None:
        return known.requeued if known is not None else None
    counts = outcome.accounting.get(f"requeue:{name}")
    read = 0 if counts is None else counts["read"]
    if read != sent["count"]:
        raise AccountingBroken(f"{sent['count']:,} rows of source {name!r} were sent again and {read:,} were read")
    mark = {name: sent[name] for name in ("command", "next", "until", "rows")}
    return Requeued(**mark, undone=sent.get("undone", False))  # which the Offsets of older drivers do not say


def _since(offsets: Offsets) -> int | None:
    """Return the time from which the driver could read; None in the Offsets of drivers that did not say it."""
    since = offsets.settings.get("since")
    return None if since is None else int(str(since))


def watermarks_after(
    engine: Engine, sources: Mapping[str, SourceProgress], before: Commit | None, *, drained: bool
) -> dict[str, int | None]:
    """Return the watermark of each step after these positions; one with a source that has none stays as it was."""
    marks = {
        node.name: watermark_of(node, sources[node.name], drained=drained)
        for node in engine.graph.sources
        if node.name in sources
    }
    known = before.watermarks_out if before is not None else {}
    after: dict[str, int | None] = {}
    for step in (*engine.graph.steps, *engine.graph.functions):
        read = [source.name for source in engine.graph.sources_of(step)]
        lag, mark = engine.graph.lag_above(step), known.get(step.name)
        reads_all = marks.keys() >= {*read}
        after[step.name] = step_watermark(mark, [behind_by(marks[name], lag) for name in read]) if reads_all else mark
    return after


Units = dict[tuple[str, int | None], Disposition]


def _judge(
    engine: Engine, outcome: BatchReceipts, decision: str | None
) -> tuple[Units, dict[str, Verdict], list[dict[str, Any]]]:
    """Return what to do with each unit of each check, the checks that stop the job, and the verdicts as JSON."""
    units: Units = {}
    stopped: dict[str, Verdict] = {}
    verdicts_json = []
    for node in engine.graph.checks:
        check = node.name
        for unit, verdict in engine.decide(check, outcome.measured.get(check, [])):
            sentence = units[check, unit] = _sentence(node, verdict, decision)
            if sentence.action is Action.STOP:
                stopped[check] = verdict
            head = {"check": check, "unit": unit, "action": sentence.action.value}
            # With hundreds of windows in a batch, only failed rules are listed.
            failed = [result.to_json() for result in verdict.results if not result.success]
            verdicts_json.append({**head, **verdict.to_json(), "results": failed})
    return units, stopped, verdicts_json


def _sentence(node: CheckNode, verdict: Verdict, decision: str | None) -> Disposition:
    """Return what the policy says, or what a person said of a batch that the gate had stopped (SEMANTICS 11.5)."""
    judged = disposition(verdict, node.on_fail, node.on_table_fail)
    if judged.action is not Action.STOP or decision is None:
        return judged
    action = Action(decision)
    if action is not Action.DROP:
        return Disposition(action=action, rows=action)
    # A table rule has no rows to choose from: the unit that broke it goes as a whole.
    whole = bool(verdict.failed_table_rules)
    return Disposition(action=action, rows=action, withheld_rules=verdict.withheld_rules, whole=whole)


def _sort_files(engine: Engine, outcome: BatchReceipts, units: Units) -> tuple[Files, Files]:
    """Return the files to publish and those to hold, and count rows by their fate (SEMANTICS 2.10, 11.3).

    A check holds the whole batch where one of its units does: what a person releases is a batch.
    """
    staged: Files = {}
    held: Files = {}
    holding = {check for (check, _), s in units.items() if s.action is Action.HOLD}
    for (sink, check), files in outcome.staged.items():
        if check is None:
            staged[sink] = [file for file, _ in files]
            continue
        behind = [s for s in engine.graph.sinks if isinstance(s.parent, CheckNode) and s.parent.name == check]
        guarded = [s.name for s in behind]
        # One that deletes what is taken back gets all rows of the check; others may not.
        counted = next((s.name for s in behind if deletes_retracted(s)), guarded[0])
        counts = outcome.accounting[f"check:{check}"] if sink == counted else None
        for file, unit in files:
            fate = _fate(file, units.get((check, unit)))
            if fate == ("published" if sink in guarded else "quarantined"):
                (held if check in holding else staged).setdefault(sink, []).append(file)
            if counts is not None:
                # Rows for the quarantine wait with the rest: who discards the batch discards them too.
                name = "held" if fate != "dropped" and check in holding else fate
                counts[name] = counts.get(name, 0) + file.rows
    return staged, held


def _fate(file: StagedFile, sentence: Disposition | None) -> str:
    if sentence is not None and sentence.whole:
        return "dropped"
    if sentence is None or {*file.fails}.isdisjoint(sentence.withheld_rules):
        return "published"
    return "quarantined" if sentence.rows is Action.QUARANTINE else "dropped"
