"""Name the columns that rows have on their way beside the user's."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import JobError
from penstock.runtime.tasks.transport import ENVELOPE

__all__ = ["BAD_RECORD", "FUTURE", "NO_EVENT_TIME", "PREFIX", "TOO_FAR_AHEAD", "refuse_taken"]

FUTURE = "_penstock_future"
"""int64: the event time beyond which a row goes to quarantine, which is batch time + max_future."""
PREFIX = "_penstock_"
"""How the names of hidden columns begin, in any case."""
BAD_RECORD, NO_EVENT_TIME, TOO_FAR_AHEAD = -1, -2, -3
"""Why a row is in quarantine, as its status says it."""


def refuse_taken(names: Iterable[str]) -> None:
    """Raise JobError for a column with a name that rows on their way need for themselves."""
    taken = next((n for n in names if n.lower().startswith(PREFIX) or n.lower() in ENVELOPE.names), None)
    if taken is not None:
        raise JobError(
            f"a column cannot be named {taken!r}: names that begin with {PREFIX}, and {', '.join(ENVELOPE.names)}, are "
            "Penstock's own"
        )
