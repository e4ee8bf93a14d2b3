"""Name the columns that rows have on their way beside the user's, and read the types of the user's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import JobError
from penstock.runtime.tasks.transport import ENVELOPE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["BAD_RECORD", "FUTURE", "NO_EVENT_TIME", "PREFIX", "TOO_FAR_AHEAD", "arrow_schema", "refuse_taken"]

FUTURE = "_penstock_future"
"""int64: the event time beyond which a row goes to quarantine, batch time + max_future; added by the reader."""
PREFIX = "_penstock_"
"""How the names of hidden columns begin, in any case."""
BAD_RECORD, NO_EVENT_TIME, TOO_FAR_AHEAD = -1, -2, -3
"""Why a row is in quarantine, as its status says it."""


def arrow_schema(types: StructType) -> pa.Schema:
    """Return Spark's types as Arrow's: times in UTC, every column nullable."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found = to_arrow_schema(types, timezone="UTC")
    # Whether a column can be null is nobody's promise: an expression behind a filter is null for dropped rows.
    return pa.schema([f.with_nullable(nullable=True) for f in found])


def refuse_taken(names: Iterable[str]) -> None:
    """Raise JobError for a column with a name that rows on their way need for themselves."""
    taken = next((n for n in names if n.lower().startswith(PREFIX) or n.lower() in ENVELOPE.names), None)
    if taken is not None:
        raise JobError(
            f"a column cannot be named {taken!r}: names that begin with {PREFIX}, and {', '.join(ENVELOPE.names)}, are "
            "Penstock's own"
        )
