"""Compute the branches of a fork side by side: Spark makes one wide row of each row that was read.

A column that no branch changes is there once, for all branches. A column that a branch computes is its own, and so is
its column of fates where it filters. So a source is read once, and its rows go to Java and back once. A row that only
some branches drop stays in the others (decision 73).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.runtime.plan.branch_frame import BranchFrame, quoted
from penstock.runtime.plan.projection import Projection, unless_dropped
from penstock.runtime.tasks.columns import PREFIX
from penstock.runtime.tasks.specs import ROW_STATUS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SideBySide"]


class SideBySide:
    """Give each branch of a fork the rows as they were in front of it, and keep what it computes of them."""

    def __init__(self, start: BranchFrame) -> None:
        self._start = start
        self._common = {name: f"{PREFIX}s{number}" for number, name in enumerate(start.visible)}
        self._fate = f"{PREFIX}s"
        common = [f"{quoted(name)} AS {kept}" for name, kept in self._common.items()]
        hidden = [name for name in start.hidden if name != ROW_STATUS]
        self._carried = [*hidden, *self._common.values(), self._fate]
        self._frame = start.frame.selectExpr(*common, f"{ROW_STATUS} AS {self._fate}", *hidden)
        self._crossing: dict[str, list[str] | None] = {}
        """Columns that cross as they are now, each with the fates of which one has to be alive; None for always."""
        self._ended = 0

    def begin(self) -> BranchFrame:
        """Return the rows with which the next branch begins; what others need goes along, unseen."""
        common = [f"{kept} AS {quoted(name)}" for name, kept in self._common.items()]
        frame = self._frame.selectExpr(*common, f"{self._fate} AS {ROW_STATUS}", *self._carried)
        begun = BranchFrame(frame, self._start.visible, (ROW_STATUS, *self._carried), self._start.filters)
        begun.made, begun.place = self._start.made, self._start.place
        return begun

    def end(self, branch: Projection) -> Mapping[str, str]:
        """Keep what a branch has computed; return for each of its columns the one that crosses."""
        frame, untouched, computed = branch.computed()
        filters, prefix = branch.chain.filters, f"{PREFIX}b{self._ended}"
        self._ended += 1
        fate = self._fate if filters == self._start.filters else prefix
        common = {name: self._common[name] for name in untouched}
        for column in common.values():
            fates = self._crossing.setdefault(column, [])
            self._crossing[column] = [*fates, fate] if filters and fates is not None else None
        own = {name: f"{prefix}_{number}" for number, name in enumerate(computed)}
        masked = [
            f"{unless_dropped(quoted(n), [ROW_STATUS] if filters else None)} AS {made}" for n, made in own.items()
        ]
        if fate == prefix:
            masked.append(f"{ROW_STATUS} AS {fate}")
        hidden = {name: fate if name == ROW_STATUS else name for name in branch.hidden}
        self._frame = frame.selectExpr(*self._carried, *masked)
        made = [*own.values(), *([fate] if fate == prefix else [])]
        self._carried += made
        self._crossing |= dict.fromkeys((*made, *hidden.values()))
        return {**common, **own, **hidden}

    def frame(self) -> DataFrame:
        """Return the columns that cross for all branches."""
        # Of a row that all have dropped nothing crosses but its fates.
        return self._frame.selectExpr(*(f"{unless_dropped(c, fates)} AS {c}" for c, fates in self._crossing.items()))
