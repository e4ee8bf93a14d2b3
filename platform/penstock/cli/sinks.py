"""`penstock sinks JOB list | redo SINK | skip SINK`: compare a job's sinks with its log, and reconcile them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Debug, Json, ProjectFolder, job_group
from penstock.cli.outcome import outcome, project_at, tell
from penstock.errors import CannotSkip

if TYPE_CHECKING:
    from penstock.runtime.restore.sink_repair import SinkStand

__all__ = ["commands"]

SinkName = Annotated[str, typer.Argument(metavar="SINK", help="The sink.", show_default=False)]

commands = job_group(
    "sinks",
    """Compare sinks with the log, and reconcile them.

    \b
    Examples:
      penstock sinks flights list
      penstock sinks flights redo hourly_delays
      penstock sinks flights skip hourly_delays
    """,
)


@commands.command("list")
def _list(context: typer.Context, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """List the batches that a sink has lost, and those that the next start publishes."""
    _reconcile(context.obj, "list", json=json, project=project, debug=debug)


def _add_repair(verb: str, summary: str) -> None:
    @commands.command(verb, help=summary)
    def _repair(
        context: typer.Context,
        sink: SinkName,
        *,
        json: Json = False,
        project: ProjectFolder = None,
        debug: Debug = False,
    ) -> None:
        _reconcile(context.obj, verb, sink, json=json, project=project, debug=debug)


_add_repair("redo", "Publish the batches that a sink has lost again, if their files exist. The job must be stopped.")
_add_repair("skip", "Skip the batches that a sink does not show. The log counts their rows. The job must be stopped.")


def _reconcile(job: str, verb: str, sink: str | None = None, *, json: bool, project: Path | None, debug: bool) -> None:
    from penstock.checkpoint.log.metadata import read_metadata
    from penstock.checkpoint.log.recovery import Damage, recover
    from penstock.checkpoint.roots import job_log
    from penstock.quality.held.release import SessionOnDemand
    from penstock.runtime.driver.settings import Identity
    from penstock.runtime.process.launch import open_spark
    from penstock.runtime.process.takeover_policy import HolderWatch, holder_name
    from penstock.runtime.restore.sink_repair import SinksAtRest, redo, skip, stands
    from penstock.time.clock import SystemClock

    with outcome(debug=debug):
        loaded = project_at(project).load(job)
        root, name = loaded.settings.root, loaded.job.name
        log = job_log(root / name)
        if log is None:
            raise CannotSkip(f"job {name!r} has no checkpoint yet", where=str(root / name))
        uuid = read_metadata((root / name).store()).uuid
        with closing(SessionOnDemand(lambda: open_spark(loaded, here=True))) as spark:
            sinks = SinksAtRest(loaded.job.graph(), root / name / "staged", spark)
            if sink is None:
                all_stands = stands(sinks, recover(log, Damage.LIST), uuid)
            else:
                patience = loaded.settings.run.takeover_after.seconds
                watch = HolderWatch(root / name, patience=patience, clock=SystemClock())
                me = Identity(holder=holder_name(), code_version=f"penstock sinks {verb}")
                work = redo if verb == "redo" else skip
                all_stands = [work(log, sinks, sink, uuid, me, watch.may_take_over)]
        facts = {"job": name, "sinks": [_to_json(stand) for stand in all_stands]}
        tell(facts, "\n".join(_line(stand, verb) for stand in all_stands), json=json)


def _to_json(stand: SinkStand) -> dict[str, object]:
    return {
        "sink": stand.sink,
        "missing": {str(commit.batch): stand.rows(commit) for commit in stand.missing},
        "waiting": {str(c.batch): stand.rows(c) for c in stand.behind if c not in stand.missing},
    }


def _line(stand: SinkStand, verb: str) -> str:
    missing = ", ".join(f"batch {commit.batch} ({stand.rows(commit):,} rows)" for commit in stand.missing)
    behind = ", ".join(f"batch {commit.batch} ({stand.rows(commit):,} rows)" for commit in stand.behind)
    if verb == "skip":
        return f"{stand.sink} skips {behind}" if behind else f"{stand.sink} shows all that the log has for it"
    if verb == "redo":
        return f"{stand.sink} shows {missing} again" if missing else f"{stand.sink} has lost nothing"
    if not behind:
        return f"{stand.sink}: shows all that the log has for it"
    waits = f"; the next start publishes batch {stand.waiting.batch}" if stand.waiting is not None else ""
    return f"{stand.sink}: " + (f"has lost {missing}" if missing else "has lost nothing") + waits
