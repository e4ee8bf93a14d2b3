"""Simulations as a picture: what is drawn, and where."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from penstock.rates import Constant, CostModel, PIDRateEstimator
from penstock.rates.load import Load
from penstock.rates.picture import picture
from penstock.rates.simulate import Plant, Simulation, simulate

SPACE = "{http://www.w3.org/2000/svg}"
LOAD = Load.of_steps([(10, 200), (5, 0), (10, 4_000)])
PLANT = Plant(load=LOAD)


def drawn(**simulations: Simulation) -> ET.Element:
    """Return the root of a picture."""
    return ET.fromstring(picture(simulations, LOAD, 'a "burst" < two'))  # noqa: S314 - drawn above


def places(path: ET.Element) -> list[tuple[float, float]]:
    """Return the points of a line."""
    return [tuple(map(float, point.split())) for point in path.attrib["d"].removeprefix("M").split(" L")]  # type: ignore[misc]


@pytest.mark.parametrize(
    "make", [CostModel, PIDRateEstimator, lambda: Constant(50), lambda: None], ids=["cost model", "pid", "slow", "off"]
)
def test_nothing_is_drawn_outside_of_the_picture(make) -> None:
    """However fast the rate, long the delay, or slow the batches."""
    root = drawn(run=simulate(PLANT, make()))
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for path in root.iter(f"{SPACE}path"):
        assert all(0 <= x <= width and 0 <= y <= height for x, y in places(path))
    for words in root.iter(f"{SPACE}text"):
        assert 0 <= float(words.attrib["x"]) <= width
        assert 0 <= float(words.attrib["y"]) <= height


def test_each_simulation_has_a_line_in_each_panel_and_a_name() -> None:
    """Rate, delay and batch time; arrivals and interval are dashed."""
    root = drawn(costs=simulate(PLANT, CostModel()), pid=simulate(PLANT, PIDRateEstimator()))
    kinds = [path.attrib["class"] for path in root.iter(f"{SPACE}path")]
    assert (kinds.count("s"), kinds.count("o"), kinds.count("d")) == (4, 4, 3)  # one of each is in the legend
    texts = [words.text for words in root.iter(f"{SPACE}text")]
    assert {"rate, rows a second", "delay, ms", "batch time, ms", "costs", "pid", "arrivals, interval"} <= {*texts}
    assert root.attrib["aria-label"] == 'a "burst" < two'


def test_a_higher_rate_is_higher_up() -> None:
    """The first line of a kind is the rate."""
    paths = list(drawn(slow=simulate(PLANT, Constant(500)), fast=simulate(PLANT, Constant(5_000))).iter(f"{SPACE}path"))
    slow, fast = (next(path for path in paths if path.attrib["class"] == kind) for kind in "so")
    assert places(slow)[0][1] > places(fast)[0][1]


def test_a_run_without_batches_is_a_picture() -> None:
    """Nothing arrived."""
    load = Load.of_steps([(5, 0)])
    root = ET.fromstring(picture({"run": simulate(Plant(load=load), None)}, load, "nothing"))  # noqa: S314 - drawn above
    assert root.tag == f"{SPACE}svg"
