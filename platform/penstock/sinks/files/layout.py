"""Keep what all files of a folder have in common: format, the columns that name folders, and types of columns.

It is in `_penstock/layout/000000000000`, created with the folder. A stream with more columns adds the next number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from penstock.checkpoint.storage.format import decode, encode
from penstock.errors import CheckpointCorrupt, ManifestDamaged, SinkSchemaMismatch
from penstock.sinks.files.folders import OutputFolder
from penstock.sinks.files.manifest import HIDDEN

__all__ = ["Layout", "check_layout", "extend_layout"]

_PLACE = f"{HIDDEN}/layout"
_KIND = "layout"
_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the files of a folder have in common. `columns` are types by names, as Arrow writes them."""

    format: str
    partition_by: tuple[str, ...]
    columns: Mapping[str, str]

    @classmethod
    def of(cls, format_name: str, partition_by: tuple[str, ...], schema: pa.Schema) -> Layout:
        """Return the layout that rows of a schema want."""
        return cls(format=format_name, partition_by=partition_by, columns={f.name: str(f.type) for f in schema})


def check_layout(folder: OutputFolder, wanted: Layout) -> None:
    """Raise SinkSchemaMismatch where rows do not fit the files that the folder has, or may have."""
    _, known = _newest(folder)
    if known is not None:
        _refuse_unfit(known, wanted, folder)


def extend_layout(folder: OutputFolder, wanted: Layout) -> None:
    """Note the layout in a folder without one, and columns that it does not know; raises SinkSchemaMismatch."""
    while True:  # somebody else may note theirs at the same time; each turn has a number more
        number, known = _newest(folder)
        if known is not None:
            _refuse_unfit(known, wanted, folder)
        more = wanted if known is None else replace(known, columns={**known.columns, **wanted.columns})
        if more == known:
            return
        if folder.create(f"{_PLACE}/{number + 1:0{_DIGITS}d}", encode(_KIND, asdict(more))):
            return


def _newest(folder: OutputFolder) -> tuple[int, Layout | None]:
    names = [name for name in folder.names(_PLACE) if name.isdecimal()]
    path = f"{_PLACE}/{max(names)}" if names else ""
    data = folder.read(path) if path else None
    if data is None:
        return -1, None
    try:
        _, body = decode(data, kind=_KIND, path=folder.full(path))
        layout = Layout(**body | {"partition_by": tuple(body["partition_by"])})
    except (CheckpointCorrupt, KeyError, TypeError) as why:
        raise ManifestDamaged(f"the file is not what was written: {why}", where=folder.full(path)) from why
    return int(max(names)), layout


def _refuse_unfit(known: Layout, wanted: Layout, folder: OutputFolder) -> None:
    where = folder.full("")
    if known.format != wanted.format:
        raise SinkSchemaMismatch(f"the folder has files of {known.format}, and not of {wanted.format}", where=where)
    if known.partition_by != wanted.partition_by:
        raise SinkSchemaMismatch(
            f"the folder is partitioned by {list(known.partition_by)}, and not by {list(wanted.partition_by)}",
            where=where,
        )
    for name, kind in wanted.columns.items():
        if known.columns.get(name, kind) != kind:
            raise SinkSchemaMismatch(
                f"column {name!r} is {known.columns[name]} in the folder, and {kind} in the stream", where=where
            )
