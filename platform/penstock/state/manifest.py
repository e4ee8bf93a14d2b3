"""The manifest: the pieces of files that are the state of one partition, one for each batch that changed it.

For each part it holds a *chain* of runs, oldest first. A run is rows sorted by (`_group`, `_hash`), in one or more
pieces. A run that is being merged into another carries a bound, `low`: its rows below it are dead, because they live
on in the run it is merged `into`. So a reader sees the same rows however far a merge has come.

All operations return a new manifest; nothing here reads a segment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.checkpoint.storage.folder import CheckpointFolder, corrupt
from penstock.checkpoint.storage.format import decode, encode
from penstock.errors import StateError
from penstock.state.parts import PARTS, Merge
from penstock.state.references import MERGED, Piece, SegmentRef, bytes_of, is_file_name
from penstock.state.row_layout import Bound, start_of_group

__all__ = ["FOLDED", "Manifest", "ManifestRef", "Run", "stamp"]

KIND = "manifest"
FOLDED = "folded"
"""The fact of a base that names the runs it contains, by part."""


@dataclass(frozen=True, slots=True)
class Run:
    """A sorted run of a chain.

    `number` names it within the manifest, `batch` is the last that wrote to it.
    `low` is the bound below which its rows are dead, None where none are; `into` the number of the run it is merged
    into, None where it is not.
    """

    number: int
    batch: int
    pieces: tuple[Piece, ...]
    low: Bound | None = None
    into: int | None = None

    @property
    def rows(self) -> int:
        """Return the number of rows, dead ones of a piece that is half merged included."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def size(self) -> int:
        """Return the size of its pieces in bytes."""
        return bytes_of(self.pieces)


def stamp(run: Run) -> list[Any]:
    """Return what changes of a run when it takes part in a merge, as JSON values."""
    return [run.number, run.batch, None if run.low is None else list(run.low), run.into]


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """Name a manifest, as a Commit does; `checksum` is that of what it says, whatever its files are called."""

    path: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The state of one partition of a step after a batch.

    `keys` are the names of the step's key columns.
    `chains` holds the runs of each part, oldest first; a part without runs is not in it.
    `floors` holds for a part the group below which all rows are dead.
    `facts` are the operator's own, plain JSON, and under PARTS what its parts are.
    `sizes` holds the size in bytes of each file that a run refers to.
    """

    step: str
    partition: int
    keys: tuple[str, ...]
    batch: int = -1
    chains: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    next_run: int = 0

    @property
    def size(self) -> int:
        """Return the bytes of all files it refers to."""
        return sum(self.sizes.values())

    @property
    def rows(self) -> int:
        """Return the rows of all runs: more than the keys, as it counts old versions and tombstones too."""
        return sum(run.rows for chain in self.chains.values() for run in chain)

    def files(self) -> list[str]:
        """Return the names of all files it refers to."""
        return sorted(self.sizes)

    def chain(self, part: str) -> tuple[Run, ...]:
        """Return the runs of a part, oldest first; none for a part that has no rows."""
        return self.chains.get(part, ())

    def append(self, ref: SegmentRef) -> Manifest:
        """Add the rows of a segment as newest runs of its parts, but no merged rows."""
        chains = dict(self.chains)
        added = [part for part in ref.parts if MERGED not in part]
        for number, part in enumerate(added, self.next_run):
            chains[part] = (*self.chain(part), Run(number, ref.batch, ref.parts[part]))
        return self._with(chains, {**self.sizes, **ref.files}, next_run=self.next_run + len(added))

    def drop(self, *parts: str) -> Manifest:
        """Drop all rows of these parts."""
        return self._with({part: chain for part, chain in self.chains.items() if part not in parts}, self.sizes)

    def with_floor(self, group: int, part: str) -> Manifest:
        """Declare rows of a part below a group dead; a floor never falls.

        Pieces that are wholly below it go at once, rows of others when they are merged.
        """
        floor = max(group, self.floors.get(part, group))
        chains = {**self.chains, part: _live(self.chain(part), start_of_group(floor))}
        return replace(self._with(chains, self.sizes), floors={**self.floors, part: floor})

    def merged(
        self, part: str, inputs: Collection[int], bound: Bound | None, rows: tuple[Piece, ...], batch: int
    ) -> Manifest:
        """Record that the rows below a bound of some runs have been merged into `rows`, after those already merged.

        `inputs` are the numbers of runs that follow one another; a bound of None means that all their rows are merged.
        """
        chain = self.chain(part)
        first = next(run for run in chain if run.number in inputs)
        number = self.next_run if first.into is None else first.into
        output = next((run for run in chain if run.number == number), Run(number, batch, ()))
        output = replace(output, batch=batch, pieces=output.pieces + rows)
        runs: list[Run] = []
        for run in chain:
            if run.number == first.number and output.pieces:
                runs.append(output)
            if run.number not in inputs:
                runs.extend([run] if run.number != number else [])
            elif bound is not None:
                low = bound if run.low is None else max(bound, run.low)
                runs.append(replace(run, low=low, into=number))
        floor = start_of_group(self.floors[part]) if part in self.floors else None
        chains = dict(self.chains) | {part: _live(runs, floor)}
        return self._with(chains, self.sizes, next_run=max(self.next_run, number + 1))

    def rebased(self, base: Manifest) -> Manifest:
        """Replace the runs that a base contains by the base; `batch` stays, as no row changes.

        A part whose old runs are gone meanwhile, because all its rows were replaced or died, has nothing of the base.
        Raises `StateError` where a run in the base has been merged since, of however few rows: they would be in the
        base and in the merged run.
        """
        chains = {}
        folded = base.facts.get(FOLDED, {})
        for part, chain in self.chains.items():
            old = [run for run in chain if run.number < base.next_run]
            if touched := next((run for run in old if stamp(run) not in folded.get(part, [])), None):
                raise StateError(
                    f"partition {self.partition} of step {self.step!r}: run {touched.number} of part {part!r} was "
                    f"merged after the base of batch {base.batch}, which was folded from it"
                )
            floor = start_of_group(self.floors[part]) if part in self.floors else None
            new = tuple(run for run in chain if run.number >= base.next_run)
            chains[part] = (_live(base.chain(part), floor) if old else ()) + new
        return self._with(chains, {**self.sizes, **base.sizes})

    def to_bytes(self) -> bytes:
        """Return the file for this manifest."""
        return encode(KIND, self._body(), version=self.version)

    @property
    def version(self) -> int:
        """Return the version of the format: 2 where a part appends, of which a reader of version 1 knows nothing."""
        kinds = {described["merge"] for described in self.facts.get(PARTS, {}).values()}
        return 2 if Merge.APPEND in kinds else 1

    @property
    def checksum(self) -> str:
        """Return a checksum of what it says, whatever the files are called: two tries of one task agree on it."""
        body = self._body() | {"names": None}
        return hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).hexdigest()

    @staticmethod
    def read(path: CheckpointFolder, ref: ManifestRef | None = None) -> Manifest:
        """Read a manifest; one that is not what `ref` says is damage.

        Raises `StateMissing` where there is none, `CheckpointCorrupt` and `FormatTooNew`.
        """

        def check(data: bytes) -> Manifest:
            _, body = decode(data, kind=KIND, path=str(path))
            try:
                manifest = _manifest(body)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise corrupt(path, f"not the manifest that Penstock writes: {error}") from error
            if ref is not None and (len(data) != ref.size or manifest.checksum != ref.checksum):
                raise corrupt(path, "the manifest is another than the one the commit names")
            return manifest

        return path.read_checked(check)

    def _with(self, chains: Mapping[str, tuple[Run, ...]], sizes: Mapping[str, int], **other: Any) -> Manifest:
        """Replace the chains, and forget files that no run refers to."""
        chains = {part: chain for part, chain in chains.items() if chain}
        named = {piece.file for chain in chains.values() for run in chain for piece in run.pieces}
        return replace(self, chains=chains, sizes={name: sizes[name] for name in sorted(named & sizes.keys())}, **other)

    def _body(self) -> dict[str, Any]:
        names = {name: place for place, name in enumerate(self.sizes)}
        return {
            "step": self.step,
            "partition": self.partition,
            "keys": list(self.keys),
            "batch": self.batch,
            "next_run": self.next_run,
            "floors": dict(self.floors),
            "facts": dict(self.facts),
            "names": list(self.sizes),
            "sizes": list(self.sizes.values()),
            "chains": {
                part: [
                    [run.number, run.batch, run.low, run.into, [_row(piece, names) for piece in run.pieces]]
                    for run in chain
                ]
                for part, chain in sorted(self.chains.items())
            },
        }


def _live(runs: Collection[Run], floor: Bound | None) -> tuple[Run, ...]:
    """Leave out pieces whose rows are all dead, and runs without pieces."""
    live = []
    for run in runs:
        least = max((bound for bound in (floor, run.low) if bound is not None), default=None)
        if least is not None and run.pieces[0].last < least:
            pieces = tuple(piece for piece in run.pieces if piece.last >= least)
            run = replace(run, pieces=pieces)  # noqa: PLW2901 - the rest of it
        if run.pieces:
            live.append(run)
    return tuple(live)


def _row(piece: Piece, names: Mapping[str, int]) -> list[Any]:
    return [
        names[piece.file],
        *(piece.offset, piece.size, piece.head, piece.tail, piece.checksum, piece.rows),
        *(*piece.first, *piece.last),
        piece.groups,
    ]


def _manifest(body: Mapping[str, Any]) -> Manifest:
    names, sizes = body["names"], body["sizes"]
    if not all(is_file_name(name) for name in names):
        raise ValueError("a file has a name that no segment has")

    def piece(row: list[Any]) -> Piece:
        place, offset, size, head, tail, checksum, rows, group, value, last_group, last, steps = row
        groups = None if steps is None else tuple((first, step, count) for first, step, count in steps)
        return Piece(names[place], offset, size, head, tail, checksum, rows, (group, value), (last_group, last), groups)

    def run(row: list[Any]) -> Run:
        number, batch, low, into, pieces = row
        return Run(number, batch, tuple(piece(row) for row in pieces), None if low is None else (low[0], low[1]), into)

    return Manifest(
        step=body["step"],
        partition=body["partition"],
        keys=tuple(body["keys"]),
        batch=body["batch"],
        chains={part: tuple(run(row) for row in chain) for part, chain in body["chains"].items()},
        floors=body["floors"],
        facts=body["facts"],
        sizes=dict(zip(names, sizes, strict=True)),
        next_run=body["next_run"],
    )
