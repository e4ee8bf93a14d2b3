"""`penstock save JOB NAME`: name the newest checkpoint, or delete a name, by the driver or in its place."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Debug, JobName, Json, ProjectFolder
from penstock.cli.outcome import outcome, project_at, shown_moment, tell
from penstock.errors import CannotSave

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def save(
    job: JobName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and _.", show_default=False)],
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the saved checkpoint of that name instead.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Create a savepoint: keep the newest checkpoint under a name.

    State and positions of that batch are kept and can be restored, however many batches follow. The job may run: its
    driver saves between two batches. A name is for one batch, and free again once it is deleted with --delete.

    \b
    Examples:
      penstock save flights before_the_new_suite
      penstock run flights --from saved=before_the_new_suite
      penstock save flights before_the_new_suite --delete
    """  # noqa: D301 - click knows the character, not the two
    from penstock.checkpoint.roots import job_log
    from penstock.supervise import saving
    from penstock.supervise.control import StreamControl
    from penstock.time.clock import SystemClock

    with outcome(debug=debug):
        settings = project_at(project).settings(job)
        if job_log(settings.root / job) is None:
            raise CannotSave(f"{job} has no checkpoint yet", where=str(settings.root))
        control = StreamControl(settings.root, job, SystemClock())
        patience = settings.run.takeover_after.seconds
        done: dict[str, object] = {"deleted": name}
        what = f"saved checkpoint {name} is deleted"
        if delete:
            saving.unsave(control, name, patience=patience)
        else:
            commit = saving.save(control, None, name, patience=patience)
            done = {"saved": name, "batch": commit.batch}
            what = f"batch {commit.batch} of {shown_moment(commit.time)} is saved as {name}"
        tell({"job": job, **done}, f"{job}: {what}", json=json)
