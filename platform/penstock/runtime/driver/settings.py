"""The identity of a driver and its settings."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.log.entries import Takeover
from penstock.checkpoint.log.metadata import refuse_other
from penstock.checkpoint.log.takeover import View
from penstock.rates.limits import Limits
from penstock.runtime.driver.rate_control import RatePolicy
from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy

__all__ = ["DriverSettings", "Identity"]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity of this driver, for the Takeover."""

    holder: str
    generation: int = 0
    code_version: str = "unknown"
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    command: str | None = None
    described: dict[str, dict[str, str]] = field(default_factory=dict)

    def takeover(
        self, view: View, partitions: Mapping[str, int], sinks: Mapping[str, str], *, checkpoint: str | None
    ) -> Takeover:
        """Return the entry by which this driver owns a log; the arguments as the entry has them.

        Raises CheckpointCorrupt where the log is that of another checkpoint: sinks would take its batches once more.
        """
        known = None if view.takeover is None else view.takeover.checkpoint
        refuse_other(known, checkpoint)
        return Takeover(
            epoch=view.next_epoch,
            writer=self.writer,
            command=self.command,
            # A driver without a generation is of the newest: the next command must still be newer.
            generation=max(self.generation, view.takeover.generation if view.takeover is not None else 0),
            holder=self.holder,
            code_version=self.code_version,
            partitions=dict(partitions),
            described=self.described,
            sinks=dict(sinks),
            checkpoint=checkpoint or known,
        )


@dataclass(frozen=True, kw_only=True)
class DriverSettings:
    """The settings of a run; nothing here changes what a batch means."""

    keep: int = 20
    """How many commits can be restored."""
    stop_at_end: bool = False
    """`available_now`: end when what was there at the start is done."""
    clock_patience: int = 5 * 60 * 1_000_000
    """How many microseconds the driver waits for a clock that was set back; then batch times continue by ticks."""
    busy_patience: float = 300.0
    """How many seconds a driver waits in all for a sink that is busy with one batch, before it ends for a retry."""
    drain: bool = False
    """Do what was there at the start, then close all windows and end (SEMANTICS 10.6)."""
    gates: Mapping[int, str] = field(default_factory=dict)
    """What a person said of batches that a gate stopped: publish, drop or hold (SEMANTICS 11.5)."""
    limits: Callable[[], Limits] = Limits
    """The hard limits of the next batch; asked before each."""
    rates: RatePolicy = field(default_factory=RatePolicy)
    """How the rates of batches come about; by default there are none."""
    saves: Callable[[], Collection[str]] = tuple
    """The names that were asked for the newest checkpoint; looked at between batches."""
    unsaves: Callable[[], Collection[str]] = tuple
    """The names that are to be deleted; looked at between batches."""
    data: DataCheckpointPolicy = field(default_factory=DataCheckpointPolicy)
    """When data checkpoints are made, and by what."""
    drop: Collection[str] = ()
    """Steps that the job no longer has and whose state a person drops knowingly (F51)."""
    caps: Mapping[str, int] = field(default_factory=dict)
    """The most bytes of state per step."""
    row_cap: int | None = 16 << 20
    """The most bytes that one row of state may have: a key with all that is kept for it."""
    debug: bool = False
    """Check what users' functions promise, which costs time: an inverse is one (SEMANTICS 4.3)."""
    stage_rows: bool = False
    """Stage all rows as rows, also where tasks can write the files of a sink: the test kit reads them."""
