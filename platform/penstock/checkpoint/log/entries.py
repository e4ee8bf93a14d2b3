"""Define the entries of a job's log (DESIGN 4): what each says, and nothing of how it is stored.

Times are UTC microseconds since 1970. A watermark of None is the beginning of time, `END_OF_TIME` its end.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)

from penstock.checkpoint.log.verdicts import packed, unpacked
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import CheckpointCorrupt

END_OF_TIME = 2**63 - 1
HELD_BACK = "held_back"
"""What the ranges of a source say of its partitions with rows that the batch leaves."""


class Record(BaseModel):
    """A frozen value that takes the fields it names, in their own types, and no others."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Place(Record):
    """The position of an entry in the log, which fills it in when it appends.

    `takeover` is the slot of the Takeover that the writer holds the log by; in a Takeover, that of the one before.
    `compaction` is the slot of the newest Compaction before the entry. Where there is none, `saves` are the slots of
    the savepoints before the entry; otherwise the Compaction has them.
    """

    slot: int
    takeover: int | None = None
    saves: dict[str, int] = {}
    compaction: int | None = None


class EntryBase(Record):
    """The base of all entries: `writer` is a random id of the driver process, `command` that of a command."""

    epoch: int = Field(ge=1)
    writer: str
    command: str | None = None
    place: Place | None = None

    @property
    def placed(self) -> Place:
        """Return its place, of slot -1 before it is appended."""
        return self.place or Place(slot=-1)


class Takeover(EntryBase):
    """A driver owns the log from here; `partitions` are those of its stateful steps.

    `described` are the settings of its job that its state does not show: what a diff compares later code with.
    `sinks` says where the rows of each sink go that can tell: a sink that shows less there has lost batches, and one
    that goes elsewhere since has not. `checkpoint` is the uuid by which they know the batches, that of `metadata.json`.
    """

    kind: Literal["takeover"] = "takeover"
    generation: int
    holder: str
    code_version: str
    partitions: dict[str, int]
    described: dict[str, dict[str, str]] = {}
    sinks: dict[str, str] = {}
    checkpoint: str | None = None


class StepWatermarks(Record):
    """The watermarks a step judges lateness by and closes by."""

    late: int | None
    close: int | None


class Offsets(EntryBase):
    """Batch N will read exactly these ranges; `ranges` are each source's own JSON, fingerprints included."""

    kind: Literal["offsets"] = "offsets"
    batch: int = Field(ge=0)
    time: int
    ranges: dict[str, dict[str, JsonValue]]
    watermarks: dict[str, StepWatermarks]
    limits: dict[str, JsonValue]
    settings: dict[str, JsonValue]


class StagedFile(Record):
    """An output file that waits to be published; `fails` names the row rules that its rows fail."""

    path: str
    size: int = Field(ge=0)
    rows: int = Field(ge=0)
    checksum: str
    stats: dict[str, JsonValue]
    fails: list[str] = []


class ManifestRef(Record):
    """The manifest of one state partition."""

    path: str
    size: int = Field(ge=0)
    checksum: str


class PartitionProgress(Record):
    """How far event time is in a source partition, and the time of the batch that last brought it a row.

    An idle partition, and one that its source no longer has, do not hold the watermark back.
    """

    highest: int | None
    seen_at: int | None
    idle: bool
    gone: bool = False


class Requeued(Record):
    """How far the quarantine of a source was sent through again (decision 134).

    Rows that batches before `next` put there were sent. The request `command` wants them up to batch `until`,
    exclusive, and has had `rows` so far. With `undone` it also wants those of undone batches that the source does not
    bring again (decision 213).
    """

    command: str
    next: int = Field(ge=0)
    until: int = Field(ge=0)
    rows: int = Field(ge=0)
    undone: bool = False


class SourceProgress(Record):
    """Where the next batch begins to read a source.

    `passed_over` has, by partition, ranges [first, end) of row positions that this line of batches never reads. Undone
    batches may have read them (decision 194).
    """

    position: dict[str, JsonValue]
    partitions: dict[str, PartitionProgress]
    ended: bool
    requeued: Requeued | None = None
    passed_over: dict[str, list[list[int]]] = {}


class SnapshotRef(Record):
    """A data checkpoint of a step: the whole state after a batch, in a version of the step's Delta table."""

    batch: int = Field(ge=0)
    time: int
    version: int = Field(ge=0)
    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)


class Commit(EntryBase):
    """Batch N is decided.

    `floor` is the oldest batch that can be restored from here on; purging goes by it and by nothing else.
    `published` are the versions of the sinks that are known to be published.
    `zero` is the job's zero time, `watermarks_in` what each step closed by, `written` bytes by kind. `snapshots` is
    the newest data checkpoint of each step: its segments, and those since, are all that `state` reads. `totals` are the
    sums of `accounting` over all batches that this one's state comes from.
    `load` has what is known of how busy the job is. `late_ms` is how much later than its batch time the batch began.
    `waiting` are the rows of live sources that waited as it was planned. `task_ms` is the time of Spark's tasks, summed
    over cores, and `gc_ms` the part of it in which Java collected garbage. `spilled_bytes` is the memory that the tasks
    have moved to disk.
    `tables` has the version of each table that a `join_static` of the batch used, by the name of the step.
    `superseded` are ranges [first, end) of batch ids that restores have undone: this batch follows from none.
    """

    kind: Literal["commit"] = "commit"
    batch: int = Field(ge=0)
    time: int
    state: dict[str, dict[str, ManifestRef]]
    staged: dict[str, list[StagedFile]]
    held: dict[str, list[StagedFile]]
    verdicts: Annotated[list[dict[str, JsonValue]], BeforeValidator(unpacked), PlainSerializer(packed)]
    sources: dict[str, SourceProgress]
    watermarks_out: dict[str, int | None]
    due: dict[str, int | None]
    due_time: dict[str, int | None] = {}
    accounting: dict[str, dict[str, int]]
    timings: dict[str, float]
    published: dict[str, int]
    floor: int = Field(ge=0)
    zero: int = 0
    watermarks_in: dict[str, int | None] = {}
    written: dict[str, int] = {}
    snapshots: dict[str, SnapshotRef] = {}
    totals: dict[str, dict[str, int]] = {}
    load: dict[str, float] = {}
    tables: dict[str, dict[str, JsonValue]] = {}
    superseded: list[list[int]] = []


class Restore(EntryBase):
    """From here state and positions are those of a batch, a saved checkpoint, a snapshot, another checkpoint, or none.

    `commit` is the batch's Commit with the state that the restore has rewritten, for another number of partitions,
    from a snapshot or from an edited table. None if the state is the batch's own.
    `truncate` maps sinks to the versions to which their tables are restored. Until a Commit follows, a driver that
    takes over does that, unless it was done (SEMANTICS 10.1).
    """

    kind: Literal["restore"] = "restore"
    batch: int | None
    source: Literal["batch", "saved", "snapshot", "import", "empty"]
    saved: str | None
    partitions: dict[str, int] | None
    commit: Commit | None = None
    truncate: dict[str, int] = {}


class Save(EntryBase):
    """A savepoint: a name for a checkpoint, and the whole Commit that it pins."""

    kind: Literal["save"] = "save"
    name: str
    commit: Commit


class Unsave(EntryBase):
    """A savepoint is deleted: its name is free, and retention deletes its files."""

    kind: Literal["unsave"] = "unsave"
    name: str


class SavedRef(Record):
    """The slot of a savepoint and the batch that it pins, so that a list of names reads no entry.

    `takeover` is the slot of the Takeover in force at the pinned Commit.
    """

    slot: int
    batch: int
    time: int
    takeover: int | None = None


def saved_ref(slot: int, commit: Commit) -> SavedRef:
    """Return what is known of a named checkpoint without reading it again."""
    return SavedRef(slot=slot, batch=commit.batch, time=commit.time, takeover=commit.placed.takeover)


class HeldRef(Record):
    """The slot of the Commit of a held batch.

    `out` are the batch ids at which a Restore superseded the batch, or reinstated it, in turn. A batch with an even
    number of them at or below its id follows from the held batch.
    """

    slot: int
    out: list[int] = []


class Compaction(EntryBase):
    """All that later readers need of the entries before it; what it names by its slot stays, the rest may go.

    `used`, `time` and `floor` are as in `Recovered`. The next three are slots: `decided` of the Commit or Restore in
    force, `redo` of the Commit to publish again, `pending` of Offsets without a Commit.
    `kept`, `restores` and `others` are the slots of the Commits that can be restored, of the Restores between them, and
    of their Takeovers. `held` are the undecided held batches, by id. `commands` are the ids of commands that have
    caused a Restore, the newest last, with its slot. `skipped` are the batches that sinks have skipped.
    """

    kind: Literal["compaction"] = "compaction"
    used: int
    time: int | None
    floor: int
    decided: int | None
    redo: int | None
    pending: int | None
    published: dict[str, int]
    kept: list[int]
    restores: list[int]
    others: list[int]
    saves: dict[str, SavedRef]
    held: dict[str, HeldRef]
    commands: dict[str, int]
    skipped: dict[str, list[int]] = {}

    @property
    def entries(self) -> set[int]:
        """Return the slots that are read together with this entry."""
        single = {slot for slot in (self.decided, self.redo, self.pending) if slot is not None}
        return {*single, *self.kept, *self.restores}

    @property
    def needed(self) -> set[int]:
        """Return the slots that stay."""
        saves = {slot for ref in self.saves.values() for slot in (ref.slot, ref.takeover) if slot is not None}
        return self.entries | saves | {ref.slot for ref in self.held.values()} | {*self.others}


class Void(EntryBase):
    """The entry in `slot` cannot be read and is given up, and with it the id of the batch it may have begun."""

    kind: Literal["void"] = "void"
    slot: int = Field(ge=0)
    reason: str
    batch: int | None


class Release(EntryBase):
    """The driver left on purpose; `published` maps each sink to the newest batch it is known to show."""

    kind: Literal["release"] = "release"
    reason: str
    published: dict[str, int] = Field(default_factory=dict)


class Moved(EntryBase):
    """The log ends here, and the job continues in the checkpoint at `to`, under the same uuid (decision 46).

    Always the last entry of a log: no driver takes over after it.
    """

    kind: Literal["moved"] = "moved"
    to: str


class Arrival(EntryBase):
    """All entries before it were copied from the checkpoint at `source`, with its uuid (decision 46).

    No driver takes over after it until that log has, in the same slot, the Moved of the same epoch and writer. Then a
    Release of that writer follows, and the log is like any other.
    """

    kind: Literal["arrival"] = "arrival"
    source: str


class Skip(EntryBase):
    """A sink skips the rows of these batches, by a person's decision (SEMANTICS 9.5, 9.6)."""

    kind: Literal["skip"] = "skip"
    sink: str
    batches: list[int]
    rows: int = Field(ge=0)


Entry = Takeover | Offsets | Commit | Restore | Save | Unsave | Compaction | Void | Release | Moved | Arrival | Skip
_BODY = b'{"epoch":'
"""How the body of every entry begins."""
_ENTRY: TypeAdapter[Any] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])


def to_bytes(entry: Entry) -> bytes:
    """Return the file of an entry; the same entry gives the same bytes, in every process."""
    return fileformat.encode(entry.kind, entry.model_dump(mode="json"))


def from_bytes(data: bytes, path: str) -> Entry:
    """Read an entry back; raises `CheckpointCorrupt` or `FormatTooNew`."""
    kind, body = fileformat.decode(data, path=path)
    try:
        entry: Entry = _ENTRY.validate_python(body)
    except ValidationError as error:
        raise corrupt(path, f"not the fields of a {kind} entry: {error.errors()[0]['loc']}") from error
    if entry.kind != kind:
        raise corrupt(path, f"a {entry.kind} entry under the header of a {kind}")
    return entry


def kind_of(data: bytes, slot: int, path: str) -> str | None:
    """Return what kind of entry a damaged file was, from its header or its body, whichever is whole.

    None where neither is, or where the file is whole and so belongs to another slot: it may have been anything.
    """
    with suppress(CheckpointCorrupt):
        from_bytes(data, path)
        return None
    with suppress(CheckpointCorrupt):
        kind: str = fileformat.read_header(data, path)["kind"]
        return kind
    with suppress(CheckpointCorrupt, ValidationError):
        entry: Entry = _ENTRY.validate_python(fileformat.parse(data[max(data.find(_BODY), 0) :], path))
        if entry.placed.slot == slot:
            return entry.kind
    return None
