"""Publish a batch as files, then the manifest: the files that tasks have written, and the rows that they have left.

The rows become a file for each folder that they belong to. A file is named by batch and app, so a batch that is
published again finds its files, and adds what is missing. A driver that was fenced can publish what a Commit names, and
nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import SinkAhead, SinkBehind, SinkRefused
from penstock.sinks.base import Publication, Publisher, Staged
from penstock.sinks.files.folders import OutputFolder
from penstock.sinks.files.formats import FileFormat
from penstock.sinks.files.manifest import BatchFile, Manifest, key_of
from penstock.sinks.files.mending import mend
from penstock.sinks.files.partitions import divided, is_named_by
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
        self._named: dict[str, Sequence[int]] = {}
        """The batches with a file of their own after the newest that this publisher has published."""
        self._made: tuple[tuple[str, ...], list[_Made]] = ((), [])

    def publish(self, publication: Publication) -> None:
        """Write the files, then the manifest; a batch that the manifest has is left alone."""
        if not publication.files:
            return
        app, batch = publication.app, publication.batch
        manifest = Manifest(self.folder, app)
        recent = manifest.recent()
        self._refuse_lost(app, recent)
        self._mend_lost(manifest, recent)
        if batch in recent:
            publication.refuse_copy(manifest.fingerprint(batch), self.folder.root)
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
        rows, written = _by_writer(publication.files)
        self._refuse_written(batch, written)
        made = self._make(rows) if rows else []
        files = [self._write(publication, each) for each in made]
        files += [self._adopt(publication, number, file) for number, file in enumerate(written)]
        if not manifest.add(batch, files, recent, publication.fingerprint):
            publication.refuse_copy(manifest.fingerprint(batch), self.folder.root)
        self._seen[app], self._named[app] = batch, [*recent, batch]
        self._made = ((), [])
        manifest.fold([*recent, batch])

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app that the manifest has."""
        newest = max(Manifest(self.folder, app).recent(), default=None)
        if newest is not None:
            self._seen[app] = newest
        return newest

    def refuse_values(self, files: Sequence[Staged]) -> None:
        """Raise SinkValueRefused for values that the format, or the name of a folder, cannot hold.

        Tasks stage rows with such values as rows.
        """
        if rows := _by_writer(files)[0]:
            self._make(rows)

    def _make(self, files: Sequence[Staged]) -> list[_Made]:
        """Return the files of rows that tasks have left; all of them are made before one is written."""
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
            if publication.fingerprint is not None and not self.format.is_same(data, made.data):
                raise publication.copied(self.folder.full(path))
        return BatchFile(path=path, rows=made.rows, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def _refuse_written(self, batch: int, files: Sequence[Staged]) -> None:
        """Raise before anything is visible: SinkRefused for files of another folder, StateMissing for one that is gone.

        A sink may have changed under its name while the batch was waiting for it.
        """
        for file in files:
            written = file.written
            assert written is not None
            if written.format != self.format.name or not is_named_by(written.folder, self.partition_by):
                raise SinkRefused(
                    f"batch {batch} was written as {written.format} into folder {written.folder!r}, for another sink",
                    where=self.folder.root,
                )
            (self.staging / file.path).fetch()

    def _adopt(self, publication: Publication, number: int, file: Staged) -> BatchFile:
        """Give a file that a task has written its name: by its number in the Commit, so each try gives the same."""
        assert file.written is not None
        folder = file.written.folder
        name = f"{publication.batch:012d}-{key_of(publication.app)}-{number:04d}.{self.format.suffix}"
        path = f"{folder}/{name}" if folder else name
        if not self.folder.adopt(path, self.staging / file.path) and publication.fingerprint is not None:
            there = self.folder.read(path)
            if there is not None and hashlib.sha256(there).hexdigest() != file.checksum:
                raise publication.copied(self.folder.full(path))
        return BatchFile(path=path, rows=file.rows, size=file.size, sha256=file.checksum)

    def _mend_lost(self, manifest: Manifest, recent: Sequence[int]) -> None:
        """Write files of the manifest again that somebody has deleted: the newest says which there were."""
        named = self._named.get(manifest.app)
        if named is None:
            named = manifest.named_by(recent[-1]) if recent else ()
        if lost := manifest.lost(named, recent):
            mend(self.folder, self.format, manifest.app, lost)

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


def _by_writer(files: Sequence[Staged]) -> tuple[list[Staged], list[Staged]]:
    """Return the files of rows, and those that tasks have written as the folder shows them."""
    return [file for file in files if file.written is None], [file for file in files if file.written is not None]
