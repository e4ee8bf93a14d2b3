"""Describe for each part of a state how its rows merge, and by which columns two rows are of the same key.

A part's *identity* are the columns that, beside `_group`, say whose a row is. How rows of one identity merge is the
part's *merge kind*:

LATEST: the newest row hides the older. A tombstone (`_deleted`) hides them too, and goes with the oldest.
COMBINE: a function merges them. Rows below the part's floor never reach it.
APPEND: all are kept, in the order in which they were appended, until the floor lets them go.

The manifest says it too (`PARTS` among its facts), so that a state can be read without the job's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, TypeAlias

import pyarrow as pa

__all__ = ["PARTS", "Combine", "Merge", "Part", "by_name"]

PARTS = "parts"
"""The fact of a manifest that describes the parts of its state, by name."""

Combine: TypeAlias = Callable[[list[pa.Table]], pa.Table]
"""Merges the rows of equal group and identity of several tables, oldest first, each sorted by group and hash.

It must not look across identities or groups, because it is given one range of them at a time.
"""


class Merge(StrEnum):
    """How the rows of one group and identity merge."""

    LATEST = "latest"
    APPEND = "append"
    COMBINE = "combine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Describe a part of a state.

    `identity` are the columns that, beside `_group`, say whose a row is.
    `combine` is the function of a part of kind COMBINE.
    `table` is the table that shows its rows to people, as the step names it. It is None where the step rebuilds them
    from those of other parts.
    """

    name: str
    identity: tuple[str, ...]
    merge: Merge
    combine: Combine | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a function that the merge kind has no use for, or lacks."""
        if (self.combine is None) is (self.merge is Merge.COMBINE):
            raise ValueError(f"part {self.name!r} merges by {self.merge}, and has a function or lacks one")

    def described(self) -> dict[str, Any]:
        """Return all but the function as JSON values; a table that is not there is left out."""
        shown = {} if self.table is None else {"table": self.table}
        return {"merge": self.merge.value, "identity": list(self.identity), **shown}

    @classmethod
    def read(cls, name: str, description: Mapping[str, Any], combine: Combine | None = None) -> Self:
        """Return the part that `described` described; `combine` is what a part of kind COMBINE merges by.

        Raises KeyError, TypeError and ValueError for what it never says.
        """
        merge = Merge(description["merge"])
        return cls(
            name=name,
            identity=tuple(description["identity"]),
            merge=merge,
            combine=combine if merge is Merge.COMBINE else None,
            table=description.get("table"),
        )


def by_name(parts: Iterable[Part]) -> dict[str, Part]:
    """Return parts by their names, in their order."""
    return {part.name: part for part in parts}
