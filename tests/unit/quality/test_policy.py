"""What becomes of the rows follows from the verdict and two policies (SEMANTICS 11.4, 11.5, 11.6)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.errors import JobError
from penstock.quality import Action, OnFail, disposition
from penstock.quality.policy import Disposition, table_policy
from penstock.quality.suite import Severity
from penstock.quality.verdict import RuleResult, Status, Verdict

ROW, TABLE = "s:1:expect_column_values_to_not_be_null(v)", "s:2:expect_table_row_count_to_be_between"


def verdict(*, row: bool = True, table: bool = True, severity: Severity = Severity.CRITICAL) -> Verdict:
    """Return a verdict in which the row rule and the table rule succeeded or not."""
    critical = severity is Severity.CRITICAL
    withheld = critical and not row
    return Verdict(
        status=Status.FAILED if critical and not (row and table) else Status.PASSED,
        rows=10,
        results=(
            RuleResult(rule=ROW, severity=severity, success=row, unexpected=0 if row else 3, considered=10),
            RuleResult(rule=TABLE, severity=severity, success=table, observed=10),
        ),
        withheld_rules=(ROW,) if withheld else (),
        withheld_mask=0b1 if withheld else 0,
    )


EXPECTED = {
    # on_fail, on_table_fail, row rule holds, table rule holds -> action, rows withheld as, mask
    (OnFail.WARN, None, False, True): (Action.PUBLISH, Action.PUBLISH, 0),
    (OnFail.DROP, None, False, True): (Action.DROP, Action.DROP, 1),
    (OnFail.QUARANTINE, None, False, True): (Action.QUARANTINE, Action.QUARANTINE, 1),
    (OnFail.HOLD, None, False, True): (Action.HOLD, Action.PUBLISH, 0),
    (OnFail.STOP, None, False, True): (Action.STOP, Action.PUBLISH, 0),
    # a table rule alone: the table policy, or what stands in for it
    (OnFail.WARN, None, True, False): (Action.PUBLISH, Action.PUBLISH, 0),
    (OnFail.DROP, None, True, False): (Action.HOLD, Action.PUBLISH, 0),
    (OnFail.QUARANTINE, None, True, False): (Action.HOLD, Action.PUBLISH, 0),
    (OnFail.HOLD, None, True, False): (Action.HOLD, Action.PUBLISH, 0),
    (OnFail.STOP, None, True, False): (Action.STOP, Action.PUBLISH, 0),
    (OnFail.DROP, OnFail.WARN, True, False): (Action.PUBLISH, Action.PUBLISH, 0),
    (OnFail.WARN, OnFail.HOLD, True, False): (Action.HOLD, Action.PUBLISH, 0),
    (OnFail.DROP, OnFail.STOP, True, False): (Action.STOP, Action.PUBLISH, 0),
    # both: the stricter acts, and what a release would still withhold is kept
    (OnFail.DROP, OnFail.WARN, False, False): (Action.DROP, Action.DROP, 1),
    (OnFail.DROP, OnFail.HOLD, False, False): (Action.HOLD, Action.DROP, 1),
    (OnFail.QUARANTINE, OnFail.STOP, False, False): (Action.STOP, Action.QUARANTINE, 1),
    (OnFail.WARN, OnFail.HOLD, False, False): (Action.HOLD, Action.PUBLISH, 0),
    (OnFail.STOP, OnFail.HOLD, False, False): (Action.STOP, Action.PUBLISH, 0),
}


@pytest.mark.fault("F52")
@pytest.mark.parametrize(
    ("given", "expected"), EXPECTED.items(), ids=lambda v: "-".join(getattr(x, "value", str(x)) for x in v)
)
def test_each_policy_does_what_semantics_11_5_says(given, expected):
    """11.5, 11.6, F52: rows that a gate stops are not published: dropped, set aside, held, or the job stops."""
    on_fail, on_table_fail, row, table = given
    decision = disposition(verdict(row=row, table=table), on_fail, on_table_fail)
    assert (decision.action, decision.rows, decision.withheld_mask) == expected
    assert decision.withheld_rules == ((ROW,) if decision.withheld_mask else ())


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.INFO])
@pytest.mark.parametrize("on_fail", OnFail)
def test_warning_and_info_never_block(severity, on_fail):
    """11.4: whatever the policy, a failed rule that is not critical is recorded and all rows are published."""
    failed = verdict(row=False, table=False, severity=severity)
    assert disposition(failed, on_fail) == Disposition(action=Action.PUBLISH)
    assert failed.noted_rules == (ROW, TABLE)
    assert failed.failed_rules == ()


@pytest.mark.parametrize("on_fail", OnFail)
@pytest.mark.parametrize("status", [Status.PASSED, Status.EMPTY])
def test_what_did_not_fail_is_published(status, on_fail):
    """11.1: a unit that passed, or that held no rows, is published under every policy."""
    assert disposition(Verdict(status=status, rows=0), on_fail) == Disposition(action=Action.PUBLISH)


@pytest.mark.parametrize("wrong", [OnFail.DROP, OnFail.QUARANTINE])
def test_a_table_rule_has_no_rows_to_choose_from(wrong):
    """11.6: table rules and uniqueness allow WARN, HOLD and STOP only."""
    with pytest.raises(JobError, match=wrong.value):
        table_policy(OnFail.STOP, wrong)


def test_naming_a_policy_loads_neither_arrow_nor_spark_nor_gx():
    """A job imports OnFail from penstock.quality, and the scheduler that parses it pays for nothing else."""
    heavy = "{'pyarrow', 'pyspark', 'great_expectations', 'numpy', 'pandas'}"
    code = f"import sys\nfrom penstock.quality import OnFail\nassert not {heavy} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there_and_others_are_not():
    """The lazy names of penstock.quality are those of its modules; an unknown one says so."""
    from penstock import quality

    assert all(getattr(quality, name) is not None for name in quality.__all__)
    with pytest.raises(AttributeError, match="Manager"):
        _ = quality.Manager
