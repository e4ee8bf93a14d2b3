"""List the checkpoints that can really be restored, for people whose checkpoint is damaged."""

from __future__ import annotations

from collections.abc import Collection

from penstock.checkpoint.log.lineage import line_of
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.log.takeover import refuse_ended, survey
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import CheckpointMoved, LogGap
from penstock.runtime.snapshots.catalog import snapshot_problems, snapshots_of

__all__ = ["way_back"]

_NAMED = 5


def way_back(recovered: Recovered, folder: CheckpointFolder, *, damaged: Collection[int]) -> str:
    """Return in words what can be restored; `damaged` are batches whose state is not whole.

    Kept batches in the line that is in force, or else any that are kept; saved ones, and data checkpoints.
    """
    try:
        refuse_ended(recovered.log, survey(recovered.log))
    except CheckpointMoved as why:
        return why.what
    except LogGap:
        pass  # which a restore makes up for
    kept = [commit.batch for commit in recovered.kept if commit.batch not in damaged]
    line = line_of(recovered)
    batches = [str(batch) for batch in kept if batch in line] or [str(batch) for batch in kept]
    names = [name for name, commit in recovered.saves.readable().items() if commit.batch not in damaged]
    bad = {name for name, _ in snapshot_problems(folder)}
    whole = [min(snapshot.names) for snapshot in snapshots_of(folder) if bad.isdisjoint(snapshot.names)]
    ways = [f"--from batch=N to one of {', '.join(batches[-_NAMED:])}"] if batches else []
    ways += [f"--from saved=NAME to {', '.join(names)}"] if names else []
    ways += [f"--from snapshot=STEP@VERSION to {', '.join(whole[-_NAMED:])}"] if whole else []
    if not ways:
        return "nothing is whole: begin anew with --from empty, or put the files back from a copy"
    return f"restore with {', or '.join(ways)}"
