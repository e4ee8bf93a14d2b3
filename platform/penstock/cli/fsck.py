"""`penstock fsck ROOT`: read every checkpoint below a root, without a project, Spark or the jobs' code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Debug, Json
from penstock.cli.outcome import outcome, write_json
from penstock.errors import CheckpointError, RootMissing, StorageUnavailable

if TYPE_CHECKING:
    from penstock.checkpoint.storage.folder import CheckpointFolder
    from penstock.runtime.inspect.fsck import Verified

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)
_MIB = 2**20


@commands.command()
def fsck(
    root: Annotated[
        str, typer.Argument(metavar="ROOT", help="A checkpoint root, or one job's folder in it.", show_default=False)
    ],
    *,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Verify all checkpoints below a root.

    The command verifies metadata, every entry of each log, and every byte of the state, and of the blocks of receivers,
    that a kept or saved batch names. It needs no project, no Spark and not the code of the jobs, and changes nothing;
    the jobs may run at the same time. If anything is damaged it ends with exit code 78.

    \b
    Examples:
      penstock fsck checkpoints
      penstock fsck checkpoints/flights --json
    """  # noqa: D301 - click knows the character, not the two
    from penstock.checkpoint.storage.locate import root_of
    from penstock.runtime.inspect.fsck import error_of

    with outcome(debug=debug):
        # What stands on HDFS is asked for, and not what is left of it here.
        with root_of(root).uncached() as folder:
            verified = _all_verified(folder)
        if json:
            write_json({"root": root, "jobs": {job: result.to_json() for job, result in verified.items()}})
        else:
            for job, result in verified.items():
                _show(job, result)
        if damaged := {job: result for job, result in verified.items() if result.findings}:
            raise error_of(damaged.values(), f"damaged: {', '.join(damaged)}", root)


def _all_verified(root: CheckpointFolder) -> dict[str, Verified]:
    """Verify the checkpoints below a root, by the names of their jobs; a job's own folder is one as well."""
    if (verified := _verified(root)) is not None:
        return {root.name: verified}
    try:
        names = [name for name in root.folders() if not name.startswith("_")]  # such are no job's
    except RootMissing:
        raise typer.BadParameter(f"there is no such folder: {root}", param_hint="ROOT") from None
    found = {name: verified for name in names if (verified := _verified(root / name)) is not None}
    if not found:
        raise typer.BadParameter(f"there is no checkpoint below it: {root}", param_hint="ROOT")
    return found


def _verified(folder: CheckpointFolder) -> Verified | None:
    """Verify one checkpoint; None where there is none."""
    from penstock.checkpoint.roots import job_log
    from penstock.runtime.inspect.fsck import Finding, Verified, verify

    try:
        return None if (log := job_log(folder, identified=False)) is None else verify(log, folder)
    except StorageUnavailable:
        raise  # nothing is known of the files, which may be whole
    except CheckpointError as why:  # there is no way to go on in this log, so nothing of it is shown
        finding = Finding.of(why, f"nothing of this checkpoint can be used as it is. {why.remedy}", type(why))
        return Verified(batches=0, files=0, size=0, findings=(finding,))


def _show(job: str, verified: Verified) -> None:
    state = f"{verified.batches:,} batches, {verified.files:,} files of state, {verified.size / _MIB:,.1f} MiB"
    if verified.blocks or verified.unneeded:
        state += f", {verified.blocks:,} blocks of receivers (and {verified.unneeded:,} that no batch needs)"
    print(f"{job}: {state}; {'not all' if verified.findings else 'all'} is as it was written")
    for left in verified.left:
        what = f"{left.blocks:,} blocks, {left.size / _MIB:,.1f} MiB, of a source {left.source!r}"
        print(f"  {left.folder}: {what} that no kept batch has")
        print("    means: if the job dropped this source, delete the folder. Otherwise its next batch reads them")
    for finding in verified.findings:
        print(f"  {finding.what}\n    means: {finding.means}")
