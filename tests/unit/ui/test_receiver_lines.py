"""The page of a job shows its receivers: state, address, rows, restarts and the newest error (F47, F77)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from project_samples import make_project
from ui_site import NOW, SECOND, Site

from penstock.receivers.supervisor import ReceiverState, State
from penstock.ui.receiver_lines import receivers_of

WELL = ReceiverState(log="orders-0", state=State.RUNNING, epoch=1, rows=12_034, address="0.0.0.0:8080", host="worker-3")
ILL = ReceiverState(log="orders-1", state=State.WAITING, epoch=4, rows=7, restarts=2, error="<b>: the port is taken")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A project with one job."""
    return Site(make_project(tmp_path / "project"))


def test_each_receiver_has_a_line(site: Site) -> None:
    """One on a cluster names its machine; an error is text, whatever is in it."""
    site.batches(1)
    site.says(receivers=[WELL.to_json(), ILL.to_json()])
    text = site.text("/jobs/orders")
    assert "orders-0 running 0.0.0.0:8080 on worker-3 12,034 0 none" in text
    assert "orders-1 ▲ waiting to be started again unknown 7 2 <b>: the port is taken" in text


def test_a_job_without_receivers_has_no_table_of_them(site: Site) -> None:
    """Nor one whose driver is silent: what it received then is in the batches."""
    site.batches(1)
    site.says()
    assert "Receivers" not in site.text("/jobs/orders")
    site.says(at=NOW - 3_600 * SECOND, receivers=[WELL.to_json()])
    assert "Receivers" not in site.text("/jobs/orders")


@pytest.mark.fault("F77")
@pytest.mark.parametrize("odd", [None, {}, "x", [None], [{}], [{"receiver": 3}]], ids=repr)
def test_what_makes_no_sense_is_not_shown(odd: Any) -> None:
    """A record is read, and not trusted."""
    assert receivers_of(odd) == ()


@pytest.mark.fault("F77")
def test_of_an_odd_receiver_what_makes_sense_is_shown() -> None:
    """Its name is enough for a line."""
    (line,) = receivers_of([{"receiver": "r", "state": [], "rows": -1, "restarts": True, "error": {}, "address": ""}])
    assert (line.name, line.state, line.rows, line.restarts, line.works) == ("r", "unknown", 0, 0, False)
    assert (line.error, line.address, line.host) == (None, None, None)
