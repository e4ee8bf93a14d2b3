"""The findings of a gate: a result for each rule, and the verdict they make together."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from enum import Enum

from penstock.quality.suite import Severity

__all__ = ["Observed", "RuleResult", "Status", "Verdict"]

Observed = int | float | dt.date | dt.datetime | None


class Status(Enum):
    """The result of a unit at its gate; EMPTY when it held no row, and so was not judged (SEMANTICS 11.1)."""

    PASSED = "passed"
    FAILED = "failed"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """The result of one rule.

    Of row rules and uniqueness `unexpected` of the `considered` rows failed; `considered` leaves nulls out, except for
    not-null. Of table rules `observed` is the number or moment compared (None where there is none, or NaN).
    """

    rule: str
    severity: Severity
    success: bool
    unexpected: int | None = None
    considered: int | None = None
    observed: Observed = None

    def to_json(self) -> dict[str, object]:
        """Return the result as a JSON value; absent numbers are left out, infinities and moments are text."""
        value: dict[str, object] = {"rule": self.rule, "severity": self.severity.value, "success": self.success}
        if self.unexpected is not None:
            value |= {"unexpected": self.unexpected, "considered": self.considered}
        elif isinstance(self.observed, dt.date):
            value["observed"] = self.observed.isoformat()
        elif isinstance(self.observed, float) and math.isinf(self.observed):
            value["observed"] = str(self.observed)
        else:
            value["observed"] = self.observed
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one unit: only critical rules decide, the others are recorded (SEMANTICS 11.4).

    `withheld_rules` are the critical row rules that failed with `mostly` applied, and `withheld_mask` has their bits.
    A gate withholds a row whose mask of `fails_mask` shares a bit with it (SEMANTICS 11.3).
    """

    status: Status
    rows: int
    results: tuple[RuleResult, ...] = ()
    withheld_rules: tuple[str, ...] = ()
    withheld_mask: int = 0

    @property
    def failed_rules(self) -> tuple[str, ...]:
        """Return the names of the critical rules that failed."""
        return tuple(r.rule for r in self.results if not r.success and r.severity is Severity.CRITICAL)

    @property
    def failed_table_rules(self) -> tuple[str, ...]:
        """Return the names of the critical table rules and rules of uniqueness that failed."""
        return tuple(name for name in self.failed_rules if name not in self.withheld_rules)

    @property
    def noted_rules(self) -> tuple[str, ...]:
        """Return the names of the rules of severity warning or info that failed."""
        return tuple(r.rule for r in self.results if not r.success and r.severity is not Severity.CRITICAL)

    def to_json(self) -> dict[str, object]:
        """Return the verdict as a JSON value, for the Commit and the status file."""
        return {"status": self.status.value, "rows": self.rows, "results": [r.to_json() for r in self.results]}
