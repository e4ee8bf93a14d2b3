"""Describe for each part of a state how its rows merge, and by which columns two rows are of the same key.

A part's *identity* are the columns that, beside `_group`, say whose a row is. How rows of one identity merge is the
part's *merge kind*:

LATEST: the newest row hides the older. A tombstone (`_deleted`) hides them too, and goes with the oldest.
COMBINE: a function merges them. Rows below the part's floor never reach it.
APPEND: all are kept, in the order in which they were appended, until the floor or a `Trim` lets them go.

The manifest says it too (`PARTS` among its facts), so that a state can be read without the job's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, TypeAlias

import pyarrow as pa

__all__ = ["PARTS", "Combine", "Merge", "Part", "Trim", "by_name", "described"]

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
class Trim:
    """The rule for rows of an appending part that are over for their key.

    The part `part`, of kind LATEST and with the same identity, has a row for each key in group 0. Rows whose column
    `by` is below its column `floor` are over, and so are all rows of a key without such a row; null lets none go.
    Both columns are int64. A key's floor may never fall. After its row was removed, a new floor has to be above all
    older rows of the key and not above new ones. A number that counts arrivals does that.
    """

    part: str
    floor: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Describe a part of a state.

    `identity` are the columns that, beside `_group`, say whose a row is.
    `combine` is the function of a part of kind COMBINE, `trim` says what goes of one of kind APPEND.
    `table` is the table that shows its rows to people, as the step names it. It is None where the step rebuilds them
    from those of other parts.
    """

    name: str
    identity: tuple[str, ...]
    merge: Merge
    combine: Combine | None = None
    trim: Trim | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a function or a trim that the merge kind has no use for, or lacks."""
        if (self.combine is None) is (self.merge is Merge.COMBINE):
            raise ValueError(f"part {self.name!r} merges by {self.merge}, and has a function or lacks one")
        if self.trim is not None and self.merge is not Merge.APPEND:
            raise ValueError(f"part {self.name!r} merges by {self.merge}, which trims nothing")

    def described(self) -> dict[str, Any]:
        """Return all but the function as JSON values; what is as usual is left out."""
        trim = None if self.trim is None else {name: getattr(self.trim, name) for name in Trim.__slots__}
        description = {"merge": self.merge.value, "identity": list(self.identity), "trim": trim, "table": self.table}
        return {name: value for name, value in description.items() if value is not None}

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
            trim=None if description.get("trim") is None else Trim(**description["trim"]),
            table=description.get("table"),
        )


def by_name(parts: Iterable[Part]) -> dict[str, Part]:
    """Return parts by their names, in their order."""
    return {part.name: part for part in parts}


def described(parts: Mapping[str, Part]) -> dict[str, dict[str, Any]]:
    """Return what a manifest says of parts."""
    return {name: part.described() for name, part in parts.items()}
