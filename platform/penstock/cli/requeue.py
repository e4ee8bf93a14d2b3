"""`penstock requeue JOB --source NAME`: send the quarantined rows of a source through the job again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import CommandId, Debug, JobName, Json, ProjectFolder
from penstock.cli.outcome import outcome, project_at, tell
from penstock.errors import RequeueRefused

if TYPE_CHECKING:
    from penstock.checkpoint.requeue_requests import RequeueAnswer, RequeueRequests

__all__ = ["commands"]

_POLL = 0.3

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def requeue(
    job: JobName,
    source: Annotated[
        str, typer.Option("--source", metavar="NAME", help="The source whose quarantine is sent.", show_default=False)
    ],
    *,
    from_batch: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Send what batch N and later quarantined again.", show_default=False),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the rows are committed.")] = False,
    command: CommandId = None,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Send quarantined rows of a source through the job again, each once.

    The driver that runs takes them into its next batches, or else the next one that starts. What was sent before is
    left out, unless --from-batch asks for it again. Rows that fail again are in quarantine again, with how often.

    \b
    Examples:
      penstock requeue flights --source departures
      penstock requeue flights --source departures --wait
      penstock requeue flights --source departures --from-batch 0
    """  # noqa: D301 - click knows the character, not the two
    from penstock.checkpoint.log.recovery import Damage, recover
    from penstock.checkpoint.requeue_requests import RequeueRequests
    from penstock.checkpoint.roots import control_store, job_log
    from penstock.runtime.driver.requeues import quarantine_sink, refuse_duplicates
    from penstock.runtime.process.takeover_policy import holder_name
    from penstock.supervise.control import StreamControl
    from penstock.time.clock import SystemClock

    with outcome(debug=debug):
        at = project_at(project)
        root = at.settings(job).root
        log = job_log(root / job)
        recovered = None if log is None else recover(log, Damage.LIST)
        commit = None if recovered is None else recovered.commit
        if recovered is None or commit is None:
            raise RequeueRefused(f"{job} has committed no batch, so nothing is in quarantine", where=str(root / job))
        if source not in commit.sources:
            there = ", ".join(map(repr, sorted(commit.sources)))
            raise RequeueRefused(f"{job} has no source {source!r}; there is {there}")
        requests = RequeueRequests(control_store(root), job)
        if command is None or not requests.has(command):  # what was asked before keeps its answer
            graph = at.load(job).job.graph()
            quarantine_sink(graph, source)
            refuse_duplicates(graph, source)
            if from_batch is not None and from_batch > recovered.used:
                raise RequeueRefused(f"batch {from_batch} has not begun, and the newest that has is {recovered.used}")
        for place in requests.unreadable():
            print(
                f"a request to requeue rows cannot be read, and is lost ({place}): repeat that as well", file=sys.stderr
            )
        name = requests.ask(source, from_batch=from_batch, by=holder_name(), again=command)
        if wait and not StreamControl(root, job, SystemClock()).has_driver():
            print(f"no driver of {job} runs; the rows wait for one, and so does this command", file=sys.stderr)
        answer = _answered(requests, name) if wait else requests.answer(name)
        asked = {"job": job, "source": source, "command": name}
        if answer is None:
            text = f"{job}: the quarantine of {source} goes into the next batches of its driver (request {name})"
            tell({**asked, "done": False}, text, json=json)
            return
        where = "nothing is in quarantine that was not sent" if answer.batch is None else f"up to batch {answer.batch}"
        done = {"done": True, "rows": answer.rows, "batch": answer.batch}
        counts = "; penstock status counts those that failed again" if answer.rows else ""
        tell({**asked, **done}, f"{job}: {answer.rows:,} rows of {source} were sent again: {where}{counts}", json=json)


def _answered(requests: RequeueRequests, name: str) -> RequeueAnswer:
    from penstock.time.clock import SystemClock

    clock = SystemClock()
    while (answer := requests.answer(name)) is None:
        if not requests.has(name):
            raise RequeueRefused(f"the record of request {name} can no longer be read: ask again")
        clock.sleep(_POLL)
    return answer
