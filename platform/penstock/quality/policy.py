"""Decide the fate of a unit's rows, from its verdict and the job's policies (SEMANTICS 11.4 to 11.6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.errors import JobError
from penstock.graph.policies import OnFail
from penstock.quality.verdict import Status, Verdict

__all__ = ["Action", "Disposition", "OnFail", "disposition", "table_policy"]


class Action(Enum):
    """The driver's action on the rows of a unit."""

    PUBLISH = "publish"
    DROP = "drop"
    QUARANTINE = "quarantine"
    HOLD = "hold"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition:
    """The action for one unit's rows.

    `withheld_mask` has the bits of the rules whose failing rows are dropped or put in quarantine; it is 0 where all
    rows share one fate. With HOLD or STOP it says which rows a later release would still withhold, and `rows` how.
    That is so where a table rule held the unit, and the row rules' policy was DROP or QUARANTINE.
    With `whole` all rows are withheld, also those that fail no row rule.
    """

    action: Action
    rows: Action = Action.PUBLISH
    withheld_mask: int = 0
    withheld_rules: tuple[str, ...] = ()
    whole: bool = False


_STRICTNESS = tuple(Action)
_TABLE_POLICIES = (OnFail.WARN, OnFail.HOLD, OnFail.STOP)


def table_policy(on_fail: OnFail, on_table_fail: OnFail | None = None) -> OnFail:
    """Return the policy for table rules and uniqueness: WARN, HOLD or STOP (SEMANTICS 11.6).

    Where none is given it is that of the rows, or HOLD where that one needs rows to choose from.
    """
    if on_table_fail is None:
        return on_fail if on_fail in _TABLE_POLICIES else OnFail.HOLD
    if on_table_fail not in _TABLE_POLICIES:
        raise JobError(f"on_table_fail is {on_table_fail.value!r}, and a table rule has no rows to choose from; "
                       "use warn, hold or stop")  # fmt: skip
    return on_table_fail


def disposition(verdict: Verdict, on_fail: OnFail, on_table_fail: OnFail | None = None) -> Disposition:
    """Return what to do with the rows of one unit; the stricter of the two policies that were called upon.

    Rules of severity warning and info are recorded in the verdict and change nothing here.
    """
    tables = table_policy(on_fail, on_table_fail)
    if verdict.status is not Status.FAILED:
        return Disposition(action=Action.PUBLISH)
    by_row = _action(on_fail) if verdict.withheld_rules else Action.PUBLISH
    by_table = _action(tables) if verdict.failed_table_rules else Action.PUBLISH
    chooses = by_row in (Action.DROP, Action.QUARANTINE)
    return Disposition(
        action=max(by_row, by_table, key=_STRICTNESS.index),
        rows=by_row if chooses else Action.PUBLISH,
        withheld_mask=verdict.withheld_mask if chooses else 0,
        withheld_rules=verdict.withheld_rules if chooses else (),
    )


def _action(policy: OnFail) -> Action:
    return Action.PUBLISH if policy is OnFail.WARN else Action(policy.value)
