"""A supervisor, its launcher and its clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from supervisor_samples import Drivers, supervisor_of

from penstock.supervise.supervisor import Supervisor
from penstock.time.clock import ManualClock


@pytest.fixture
def drivers() -> Drivers:
    """Return the launcher."""
    return Drivers()


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands."""
    return ManualClock()


@pytest.fixture
def mine(tmp_path: Path, drivers: Drivers, clock: ManualClock) -> Supervisor:
    """Return a supervisor of a project with one job."""
    return supervisor_of(tmp_path, drivers, clock)
