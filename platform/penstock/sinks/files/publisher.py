"""Publish a batch as files: one for each folder that its rows belong to, then the manifest.

A file is named by batch and app, so a batch that is published again finds its files, and writes what is missing. A
driver that was fenced can publish what a Commit names, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import SinkAhead, SinkBehind
from penstock.sinks.base import Publication, Publisher, Staged
from penstock.sinks.files.folders import OutputFolder
from penstock.sinks.files.formats import FileFormat
from penstock.sinks.files.manifest import BatchFile, Manifest, key_of
from penstock.sinks.files.partitions import divided
from penstock.sinks.staged_files import read_staged

__all__ = ["FilePublisher"]


@dataclass(frozen=True, slots=True)
class _Made:
    """A file that is to be written into a folder below the sink's."""

    folder: str
    rows: int
    data: memoryview


class FilePublisher(Publisher):
    """Write the files of a batch, and note them."""

    def __init__(
        self, folder: OutputFolder, staging: CheckpointFolder, form: FileFormat, partition_by: Sequence[str]
    ) -> None:
        self.folder = folder
        self.staging = staging
        self.format = form
        self.partition_by = partition_by
        self._seen: dict[str, int] = {}
        self._made: tuple[tuple[str, ...], list[_Made]] = ((), [])

    def publish(self, publication: Publication) -> None:
        """Write the files, then the manifest; a batch that the manifest has is left alone."""
        if not publication.files:
            return
        app, batch = publication.app, publication.batch
        manifest = Manifest(self.folder, app)
        recent = manifest.recent()
        self._refuse_lost(app, recent)
        if batch in recent:
            self._seen[app] = recent[-1]
            return
        if recent and recent[-1] > batch:
            raise SinkAhead(
                f"the folder has batch {recent[-1]} of this checkpoint and is asked to take {batch}",
                where=self.folder.root,
                seen=recent[-1],
                batch=batch,
            )
        if any(known.has(batch) for known in manifest.truncations()):
            return  # a driver that was fenced: a restore has taken the batch back
        manifest.add(batch, [self._write(publication, made) for made in self._make(publication.files)])
        self._seen[app] = batch
        self._made = ((), [])
        manifest.fold([*recent, batch])

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app that the manifest has."""
        newest = max(Manifest(self.folder, app).recent(), default=None)
        if newest is not None:
            self._seen[app] = newest
        return newest

    def refuse_values(self, files: Sequence[Staged]) -> None:
        """Raise SinkValueRefused for values that the format, or the name of a folder, cannot hold."""
        if files:
            self._make(files)

    def _make(self, files: Sequence[Staged]) -> list[_Made]:
        """Return the files of a batch; all of them are made before one is written."""
        paths = tuple(file.path for file in files)
        if self._made[0] != paths:  # else they were made before the Commit
            rows = read_staged(self.staging, files)
            parts = divided(rows, self.partition_by)
            made = [_Made(folder, part.num_rows, self.format.encode(part)) for folder, part in parts]
            self._made = paths, made
        return self._made[1]

    def _write(self, publication: Publication, made: _Made) -> BatchFile:
        name = f"{publication.batch:012d}-{key_of(publication.app)}.{self.format.suffix}"
        path = f"{made.folder}/{name}" if made.folder else name
        data: memoryview | bytes = made.data
        if not self.folder.create(path, made.data):
            # The publisher before has written it, and died before the manifest; of another version, say.
            data = self.folder.read(path) or made.data
        return BatchFile(path=path, rows=made.rows, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def _refuse_lost(self, app: str, recent: Sequence[int]) -> None:
        seen = self._seen.get(app)
        if seen is not None and (not recent or recent[-1] < seen):
            shown = recent[-1] if recent else -1
            raise SinkBehind(
                f"the manifest has batch {shown} of this checkpoint as the newest, and had batch {seen}",
                where=self.folder.root,
                shown=shown,
                missing=[seen],
            )
