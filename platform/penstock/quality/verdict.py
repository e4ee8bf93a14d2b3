"""The verdict of a unit: each rule decided from the merged numbers, as GX 1.24.1 decides it on its Spark engine.

Facts of that engine that a reader would not guess (found in its source and by running it):

- A share is `(considered - unexpected) / considered` in doubles, compared with `mostly` by >=.
  Where no row is considered the rule passes.
- An observed value that is null or NaN fails, whatever the bounds. So a maximum, mean or sum over a NaN fails, and
  a minimum over nothing but NaN; a sum over no value is null and fails also `>= 0`.
- Sums of whole numbers and means are doubles, the mean of a decimal is first rounded to four more digits (half up).
- A decimal is turned into a double before it is compared. A whole minimum or maximum is compared exactly.
- A timestamp beside dates is compared by its date alone: 23:59 is not after the same day.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from penstock.quality.exact import rounded
from penstock.quality.predicates import CompiledRule, Family
from penstock.quality.suite import Kind, Rule, Severity

__all__ = ["OBSERVED", "Numbers", "Observed", "RuleResult", "Status", "Verdict", "judge"]

Observed = int | float | dt.date | dt.datetime | None
Numbers = Mapping[str, Any]
"""The merged numbers of one unit.

Its `rows.sum`, and by the position of a rule what was measured for it. Of a floating sum that is also `bins`, its parts
as `penstock.quality.exact` has them. Of a rule of uniqueness it is `repeated`: how many rows hold a value that another
row holds too, and how many hold a value.
"""
_WIDE = decimal.Context(prec=90, rounding=decimal.ROUND_HALF_UP)


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


def judge(rules: Sequence[CompiledRule], numbers: Numbers) -> Verdict:
    """Return the verdict of one unit from its merged numbers."""
    results = tuple(_result(rule, numbers) for rule in rules)
    pairs = list(zip(rules, results, strict=True))
    withheld = [rule for rule, result in pairs if rule.bit is not None and not result.success]
    failed = any(not r.success and r.severity is Severity.CRITICAL for r in results)
    return Verdict(
        status=Status.FAILED if failed else Status.PASSED,
        rows=int(numbers["rows.sum"]),
        results=results,
        withheld_rules=tuple(rule.name for rule in withheld),
        withheld_mask=sum(1 << cast("int", rule.bit) for rule in withheld),
    )


def _result(rule: CompiledRule, numbers: Numbers) -> RuleResult:
    if rule.kind is Kind.ROW:
        return _share(rule, _of(rule, numbers, "unexpected.sum"), _of(rule, numbers, "considered.sum"))
    if rule.type == "expect_column_values_to_be_unique":
        return _share(rule, *numbers.get(f"{rule.position}.repeated", (0, 0)))
    observed = OBSERVED[rule.type](rule, numbers)
    if isinstance(observed, float) and math.isnan(observed):
        observed = None
    success = observed is not None and _within(observed, rule)
    return RuleResult(rule=rule.name, severity=rule.severity, success=success, observed=observed)


def _of(rule: CompiledRule, numbers: Numbers, name: str) -> Any:
    return numbers[f"{rule.position}.{name}"]


def _share(rule: CompiledRule, unexpected: int, considered: int) -> RuleResult:
    success = considered == 0 or (float(considered) - float(unexpected)) / float(considered) >= rule.mostly
    return RuleResult(
        rule=rule.name, severity=rule.severity, success=success, unexpected=unexpected, considered=considered
    )


def _within(observed: Any, rule: Rule) -> bool:
    low, high = rule.min_value, rule.max_value
    if isinstance(observed, dt.date) and (low is not None or high is not None):
        observed = _beside(observed, low if low is not None else high)
    above = low is None or (observed > low if rule.strict_min else observed >= low)
    below = high is None or (observed < high if rule.strict_max else observed <= high)
    return bool(above and below)


def _beside(observed: dt.date, bound: Any) -> dt.date:
    """Return a moment as what the bound is: the date of a timestamp, the midnight of a date."""
    if isinstance(bound, dt.datetime):
        return observed if isinstance(observed, dt.datetime) else dt.datetime.combine(observed, dt.time.min)
    return observed.date() if isinstance(observed, dt.datetime) else observed


def _least(rule: CompiledRule, numbers: Numbers) -> Observed:
    if rule.column_type.family is Family.FLOATING and _of(rule, numbers, "considered.sum") == _of(
        rule, numbers, "nan.sum"
    ):
        return None
    return _plain(_of(rule, numbers, "value.min"))


def _most(rule: CompiledRule, numbers: Numbers) -> Observed:
    if rule.column_type.family is Family.FLOATING and _of(rule, numbers, "nan.sum"):
        return None
    return _plain(_of(rule, numbers, "value.max"))


def _plain(value: Any) -> Observed:
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return cast("Observed", value)


def _sum(rule: CompiledRule, numbers: Numbers) -> Observed:
    if _of(rule, numbers, "considered.sum") == 0:
        return None
    # A sum of longs or decimals is at most about 1e57, far below the largest double.
    return float(_total(rule, numbers))


def _mean(rule: CompiledRule, numbers: Numbers) -> Observed:
    count = int(_of(rule, numbers, "considered.sum"))
    if count == 0:
        return None
    total = _total(rule, numbers)
    if isinstance(total, decimal.Decimal):
        scale = min(rule.column_type.scale + 4, 38)
        quotient = _WIDE.divide(total, decimal.Decimal(count))
        return float(quotient.quantize(decimal.Decimal(1).scaleb(-scale), context=_WIDE))
    return float(total) / count


def _total(rule: CompiledRule, numbers: Numbers) -> int | float | decimal.Decimal:
    if rule.column_type.family is Family.DECIMAL:
        return cast("decimal.Decimal", _of(rule, numbers, "value.sum"))
    if rule.column_type.family is Family.INTEGRAL:
        return int(_of(rule, numbers, "high.sum")) * 2**32 + int(_of(rule, numbers, "low.sum"))
    above, below = _of(rule, numbers, "above.sum"), _of(rule, numbers, "below.sum")
    if _of(rule, numbers, "nan.sum") or (above and below):
        return math.nan
    if above or below:
        return math.inf if above else -math.inf
    return rounded(numbers.get(f"{rule.position}.bins", ()))


OBSERVED: Mapping[str, Callable[[CompiledRule, Numbers], Observed]] = {
    "expect_table_row_count_to_be_between": lambda _, numbers: int(numbers["rows.sum"]),
    "expect_column_min_to_be_between": _least,
    "expect_column_max_to_be_between": _most,
    "expect_column_sum_to_be_between": _sum,
    "expect_column_mean_to_be_between": _mean,
}
"""What is observed of a unit for the table rules that compare one number with their bounds."""
