"""Decode records that are plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.sources.formats.base import Decoded, Format, texts_of

__all__ = ["Text"]


@dataclass(frozen=True, slots=True)
class Text(Format):
    """UTF-8 text: one column, `value string`, null for a record without a value."""

    def columns(self) -> pa.Schema:
        """Return the one column."""
        return pa.schema([("value", pa.string())])

    def decode(self, values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
        """Return the texts; one that is no UTF-8 is an error."""
        texts, errors = texts_of(values)
        return Decoded(pa.table([texts], schema=schema), pa.array(errors, pa.string()) if any(errors) else None)
