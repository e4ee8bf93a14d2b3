"""Pass on the bytes of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.sources.formats.base import Decoded, Format

__all__ = ["Raw"]


@dataclass(frozen=True, slots=True)
class Raw(Format):
    """The bytes as they came: one column, `value binary`, null for a record without a value."""

    def columns(self) -> pa.Schema:
        """Return the one column."""
        return pa.schema([("value", pa.binary())])

    def decode(self, values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
        """Return the bytes; none is wrong."""
        return Decoded(pa.table([pa.array(values, pa.binary())], schema=schema), None)
