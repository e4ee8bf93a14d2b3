"""Write files of a manifest again that somebody has deleted, from the data files that they named (decision 188)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import structlog

from penstock.sinks.files.folders import OutputFolder
from penstock.sinks.files.formats import FileFormat
from penstock.sinks.files.manifest import BatchFile, Manifest, key_of
from penstock.sinks.files.sweep import DATA, files_in

__all__ = ["mend"]

log = structlog.get_logger()


def mend(folder: OutputFolder, form: FileFormat, app: str, batches: Collection[int]) -> None:
    """Name again the data files of published batches that the manifest lacks, and log which files those are.

    Names of data files tell batch and app, and a data file is there whole or not at all. So the result is what was
    deleted, but for data files that somebody has deleted as well. Lists the whole folder.
    """
    found: dict[int, list[str]] = {batch: [] for batch in batches}
    for path, entry in files_in(folder, ""):
        named = DATA.fullmatch(entry.name)
        if named is not None and named[2] == key_of(app) and int(named[1]) in found:
            found[int(named[1])].append(path)
    manifest = Manifest(folder, app)
    for batch, paths in sorted(found.items()):
        files = [file for path in sorted(paths) if (file := _described(folder, form, path)) is not None]
        manifest.add(batch, files)
        named_rows = sum(file.rows for file in files)
        where = folder.full(manifest.path(batch))
        log.warning("sink.manifest_mended", batch=batch, path=where, files=len(files), rows=named_rows)


def _described(folder: OutputFolder, form: FileFormat, path: str) -> BatchFile | None:
    data = folder.read(path)
    if data is None:
        return None
    return BatchFile(path=path, rows=form.count(data), size=len(data), sha256=hashlib.sha256(data).hexdigest())
