"""Keep the manifest of a folder: which files belong to which batch of which app.

`<folder>/_penstock/batches/<key of the app>/` has, of an app:

- `000000000042`: one batch, created when all its files are there
- `folded/<first>-<last>`: many of them in one file
- `truncated/<slot>`: batches that a restore has taken back

The file of a batch is created once, so of two publishers one has published the batch. The newest files of batches stay;
older ones are folded into one, in which each batch is written once more and never again (decision 120). The file of a
batch names the others that there were beside it, so that one that somebody has deleted is missed (decision 188).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.checkpoint.storage.format import decode, encode
from penstock.errors import CheckpointCorrupt, ManifestDamaged
from penstock.sinks.files.folders import OutputFolder

__all__ = [
    "HIDDEN",
    "BatchFile",
    "Manifest",
    "PublishedFile",
    "Truncation",
    "apps_of",
    "key_of",
    "published_files",
    "truncations_by_key",
]

HIDDEN = "_penstock"
"""The folder of what is no data: pandas, Arrow and Spark pass names over that begin with an underscore."""
_BATCHES = f"{HIDDEN}/batches"
_KIND = "published"
_TRUNCATED = "truncated"
_RECENT = "recent"
_FIELDS = {_KIND: ("app", "batches"), _TRUNCATED: ("slot", "after", "until")}
_DIGITS = 12
KEEP = 8
"""Newest files of batches that are never folded: they say how far the app is."""
FOLD = 120
"""Files of batches that are folded into one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFile:
    """A file of a batch. `path` is below the folder, `size` in bytes, `sha256` in hexadecimal digits."""

    path: str
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """A file that a manifest names.

    Attributes:
        path: The path, or the URL on HDFS.
        rows: How many rows it has.
        size: Its size in bytes.
        sha256: The checksum of its bytes, in hexadecimal digits.
        batch: The batch that published it.
        app: The checkpoint and the sink that published it, `<uuid>/<sink>`.
    """

    path: str
    rows: int
    size: int
    sha256: str
    batch: int
    app: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """The batches of an app that the Restore in `slot` has taken back: those after `after`, up to `until`."""

    slot: int
    after: int
    until: int

    def has(self, batch: int) -> bool:
        """Return whether a batch was taken back."""
        return self.after < batch <= self.until


def key_of(app: str) -> str:
    """Return the name that an app has in the names of files."""
    return hashlib.sha256(app.encode()).hexdigest()[:16]


class Manifest:
    """The batches of one app."""

    def __init__(self, folder: OutputFolder, app: str) -> None:
        self.folder = folder
        self.app = app
        self._place = f"{_BATCHES}/{key_of(app)}"

    def recent(self) -> list[int]:
        """Return the batches that have a file of their own, ascending: the newest one is the last."""
        return _numbers(self.folder.names(self._place))

    def add(
        self, batch: int, files: Iterable[BatchFile], recent: Sequence[int] = (), fingerprint: int | None = None
    ) -> bool:
        """Say that a batch is published, beside those with a file of their own; False where that was said before.

        `fingerprint` is that of its Publication.
        """
        said = {} if fingerprint is None else {"fingerprint": fingerprint}
        body = {"app": self.app, "batches": [{"batch": batch, "files": [asdict(file) for file in files], **said}]}
        return self.folder.create(self.path(batch), encode(_KIND, body | {_RECENT: [*recent]}))

    def fingerprint(self, batch: int) -> int | None:
        """Return the fingerprint of a batch with a file of its own, None where it has none; raises ManifestDamaged."""
        batches = _read(self.folder, self.path(batch))[1]
        return batches[0].get("fingerprint") if batches else None

    def named_by(self, batch: int) -> list[int]:
        """Return the batches that had a file of their own when this one was published; raises ManifestDamaged."""
        return list(_body(self.folder, self.path(batch), _KIND).get(_RECENT, ()))

    def lost(self, named: Iterable[int], recent: Sequence[int]) -> list[int]:
        """Return those of the named batches that neither have a file of their own, as `recent` has, nor are folded."""
        gone = set(named) - set(recent)
        for name in self.folder.names(f"{self._place}/folded") if gone else ():
            first, _, last = name.partition("-")
            if last.isdecimal() and any(int(first) <= batch <= int(last) for batch in gone):
                gone -= {each["batch"] for each in _read(self.folder, f"{self._place}/folded/{name}")[1]}
        return sorted(gone)

    def fold(self, recent: Sequence[int]) -> None:
        """Put batches with a file of their own into one, if there are many; a crash in between leaves both."""
        old = recent[:-KEEP]
        if len(old) < FOLD:
            return
        batches = [each for batch in old for each in _read(self.folder, self.path(batch))[1]]
        if batches:
            body = {"app": self.app, "batches": batches}
            name = f"{old[0]:0{_DIGITS}d}-{old[-1]:0{_DIGITS}d}"
            self.folder.create(f"{self._place}/folded/{name}", encode(_KIND, body))
        for batch in old:
            self.folder.delete(self.path(batch))

    def truncate(self, truncation: Truncation) -> bool:
        """Say that batches are taken back; False where that was said for this Restore before."""
        path = f"{self._place}/{_TRUNCATED}/{truncation.slot:0{_DIGITS}d}"
        return self.folder.create(path, encode(_TRUNCATED, {"app": self.app, **asdict(truncation)}))

    def truncations(self) -> list[Truncation]:
        """Return what was taken back; raises ManifestDamaged."""
        return _truncations(self.folder, self._place)

    def entries(self) -> dict[int, list[dict[str, Any]]]:
        """Return the files of all batches, also of those that were taken back; raises ManifestDamaged."""
        return _entries(self.folder, self._place)[1]

    def path(self, batch: int) -> str:
        """Return the path of a batch's own file, below the folder."""
        return f"{self._place}/{batch:0{_DIGITS}d}"


def published_files(folder: OutputFolder) -> list[PublishedFile]:
    """Return the files of all batches of all apps, by batch and app."""
    return [
        PublishedFile(**file | {"path": folder.full(file["path"])}, batch=batch, app=app)
        for batch, app, files in sorted(_published(folder), key=lambda each: each[:2])
        for file in files
    ]


def apps_of(folder: OutputFolder) -> list[str]:
    """Return the apps that have published into a folder."""
    return [app for key in folder.names(_BATCHES) if (app := _entries(folder, f"{_BATCHES}/{key}")[0])]


def truncations_by_key(folder: OutputFolder) -> dict[str, list[Truncation]]:
    """Return what restores have taken back, by the key of the app."""
    return {key: _truncations(folder, f"{_BATCHES}/{key}") for key in folder.names(_BATCHES)}


def _published(folder: OutputFolder) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    for key in folder.names(_BATCHES):
        app, batches = _entries(folder, f"{_BATCHES}/{key}", whole=True)
        truncations = _truncations(folder, f"{_BATCHES}/{key}")
        for batch, files in batches.items():
            if not any(known.has(batch) for known in truncations):
                yield batch, app, files


def _entries(folder: OutputFolder, place: str, *, whole: bool = False) -> tuple[str, dict[int, list[dict[str, Any]]]]:
    """Return the app of a place, "" where it has published nothing, and its batches.

    Asked for the `whole`, raises ManifestDamaged where a batch is missing that a later one names.
    """
    paths = [f"{place}/{batch:0{_DIGITS}d}" for batch in _numbers(folder.names(place))]
    bodies = [_body(folder, path, _KIND) for path in paths]
    # Those that were folded meanwhile have a file here by now.
    bodies += [_body(folder, f"{place}/folded/{name}", _KIND) for name in folder.names(f"{place}/folded")]
    app = next((body["app"] for body in bodies if body), "")
    batches = {each["batch"]: each["files"] for body in bodies for each in body.get("batches", ())}
    gone = {batch for body in bodies for batch in body.get(_RECENT, ())} - batches.keys()
    if whole and gone:
        raise _damaged(folder, f"{place}/{min(gone):0{_DIGITS}d}", f"gone, of {len(gone):,} that later ones name")
    return app, batches


def _truncations(folder: OutputFolder, place: str) -> list[Truncation]:
    numbers = _numbers(folder.names(f"{place}/{_TRUNCATED}"))
    bodies = (_body(folder, f"{place}/{_TRUNCATED}/{number:0{_DIGITS}d}", _TRUNCATED) for number in numbers)
    return [Truncation(slot=body["slot"], after=body["after"], until=body["until"]) for body in bodies if body]


def _read(folder: OutputFolder, path: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the app of a file and its batches, none where the file is gone; raises ManifestDamaged."""
    body = _body(folder, path, _KIND)
    return body.get("app", ""), body.get("batches", [])


def _body(folder: OutputFolder, path: str, kind: str) -> dict[str, Any]:
    """Return what a file of the manifest says, nothing where it is gone; raises ManifestDamaged."""
    data = folder.read(path)
    if data is None:
        return {}
    try:
        body = decode(data, kind=kind, path=folder.full(path))[1]
        return {name: body[name] for name in (_FIELDS[kind])} | {_RECENT: body.get(_RECENT, [])}
    except (CheckpointCorrupt, KeyError) as why:
        raise _damaged(folder, path, f"not what was written: {why}") from why


def _damaged(folder: OutputFolder, path: str, how: str) -> ManifestDamaged:
    return ManifestDamaged(f"the file is {how}", where=folder.full(path))


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if len(name) == _DIGITS and name.isdecimal())
