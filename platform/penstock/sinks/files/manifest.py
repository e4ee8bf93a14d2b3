"""Keep the manifest of a folder: which files belong to which batch of which app.

`<folder>/_penstock/batches/<key of the app>/` has, of an app:

- `000000000042`: one batch, created when all its files are there
- `folded/<first>-<last>`: many of them in one file
- `truncated/<slot>`: batches that a restore has taken back

The file of a batch is created once, so of two publishers one has published the batch. The newest files of batches stay;
older ones are folded into one, in which each batch is written once more and never again (decision 120).
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

    def add(self, batch: int, files: Iterable[BatchFile]) -> bool:
        """Say that a batch is published; False where that was said before."""
        body = {"app": self.app, "batches": [{"batch": batch, "files": [asdict(file) for file in files]}]}
        return self.folder.create(self._path(batch), encode(_KIND, body))

    def fold(self, recent: Sequence[int]) -> None:
        """Put batches with a file of their own into one, if there are many; a crash in between leaves both."""
        old = recent[:-KEEP]
        if len(old) < FOLD:
            return
        batches = [each for batch in old for each in _read(self.folder, self._path(batch))[1]]
        if batches:
            body = {"app": self.app, "batches": batches}
            name = f"{old[0]:0{_DIGITS}d}-{old[-1]:0{_DIGITS}d}"
            self.folder.create(f"{self._place}/folded/{name}", encode(_KIND, body))
        for batch in old:
            self.folder.delete(self._path(batch))

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

    def _path(self, batch: int) -> str:
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
        app, batches = _entries(folder, f"{_BATCHES}/{key}")
        truncations = _truncations(folder, f"{_BATCHES}/{key}")
        for batch, files in batches.items():
            if not any(known.has(batch) for known in truncations):
                yield batch, app, files


def _entries(folder: OutputFolder, place: str) -> tuple[str, dict[int, list[dict[str, Any]]]]:
    """Return the app of a place, "" where it has published nothing, and its batches."""
    paths = [f"{place}/{batch:0{_DIGITS}d}" for batch in _numbers(folder.names(place))]
    read = [_read(folder, path) for path in paths]
    # Those that were folded meanwhile have a file here by now.
    read += [_read(folder, f"{place}/folded/{name}") for name in folder.names(f"{place}/folded")]
    app = next((name for name, _ in read if name), "")
    return app, {each["batch"]: each["files"] for _, batches in read for each in batches}


def _truncations(folder: OutputFolder, place: str) -> list[Truncation]:
    records = []
    for number in _numbers(folder.names(f"{place}/{_TRUNCATED}")):
        path = f"{place}/{_TRUNCATED}/{number:0{_DIGITS}d}"
        data = folder.read(path)
        if data is None:
            continue
        try:
            _, body = decode(data, kind=_TRUNCATED, path=folder.full(path))
            records.append(Truncation(slot=body["slot"], after=body["after"], until=body["until"]))
        except (CheckpointCorrupt, KeyError) as why:
            raise ManifestDamaged(f"the file is not what was written: {why}", where=folder.full(path)) from why
    return records


def _read(folder: OutputFolder, path: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the app of a file and its batches, none where the file is gone; raises ManifestDamaged."""
    data = folder.read(path)
    if data is None:
        return "", []
    try:
        _, body = decode(data, kind=_KIND, path=folder.full(path))
        return body["app"], body["batches"]
    except (CheckpointCorrupt, KeyError) as why:
        raise ManifestDamaged(f"the file is not what was written: {why}", where=folder.full(path)) from why


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if len(name) == _DIGITS and name.isdecimal())
