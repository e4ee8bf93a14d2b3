"""`penstock simulate`: run a rate estimator on a plant, or on the history of a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Debug, Json, ProjectFolder
from penstock.cli.outcome import columns, outcome, project_at, refusing, show, write_json
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.rates import RateEstimator
    from penstock.rates.load import Load
    from penstock.rates.simulate import Plant, Simulation

__all__ = ["Estimator", "commands"]

commands = typer.Typer(rich_markup_mode=None)
_SECOND = 1_000.0
_PLANT = "plant"
_BURST = ("60 seconds=100", "30 seconds=0", "20 seconds=1000", "60 seconds=100")
"""A quiet minute, a pause, and a burst of ten times."""
_NUMBERS = ("batch", "second", "rows", "rate", "delay ms", "batch ms", "late ms", "left", "interval ms")


class Estimator(Enum):
    """The estimators that can be simulated."""

    COST_MODEL = "cost_model"
    PID = "pid"
    CONSTANT = "constant"
    OFF = "off"


@commands.command()
def simulate(
    *,
    metrics: Annotated[
        str, typer.Option(metavar="plant|JOB", help="A made-up job, or the history of a job of the project.")
    ] = _PLANT,
    estimator: Annotated[Estimator, typer.Option(help="What sets the rate.")] = Estimator.COST_MODEL,
    interval: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="The batch interval. By default that of the job; of the plant, and of a job that has none, a second.",
            show_default=False,
        ),
    ] = None,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Let the cost model lengthen the interval, as drivers do.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(metavar="ROWS", help="Rows a second of --estimator constant.", show_default=False)
    ] = None,
    first_rate: Annotated[
        float, typer.Option(metavar="ROWS", help="The most rows a second of a partition before the first estimate.")
    ] = 10_000,
    max_rate: Annotated[
        float | None, typer.Option(metavar="ROWS", help="The most rows a second of a partition.", show_default=False)
    ] = None,
    load: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DURATION=ROWS",
            help=f"Rows a second of the plant for a while; repeatable. By default {', '.join(_BURST)}.",
            show_default=False,
        ),
    ] = None,
    fixed_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="What a batch costs whatever it reads.", show_default=False)
    ] = None,
    row_ms: Annotated[float | None, typer.Option(metavar="MS", help="What each row costs.", show_default=False)] = None,
    noise: Annotated[
        float | None, typer.Option(metavar="PART", help="How much batches vary: 0.05 is 5%.", show_default=False)
    ] = None,
    pauses: Annotated[
        float, typer.Option(metavar="PART", help="The part of batches that the garbage collector pauses.")
    ] = 0.0,
    pause_ms: Annotated[float, typer.Option(metavar="MS", help="How long such a pause is.")] = 1_500,
    seed: Annotated[int, typer.Option(metavar="N", help="The seed of noise and pauses.")] = 0,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture (SVG).", show_default=False)
    ] = None,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Simulate a rate estimator.

    The plant is a made-up job; with the name of a job, its log says which rows came and what batches cost. Options for
    costs replace what the log says. The command starts no Spark and changes nothing.

    \b
    Examples:
      penstock simulate                              the cost model, through a burst
      penstock simulate --estimator pid --picture pid.svg
      penstock simulate --metrics flights --interval "5 seconds" --max-rate 2000
      penstock simulate --fixed-ms 1200 --adaptive --load "2 minutes=1000"
    """  # noqa: D301 - click knows the character, not the two
    from penstock.config.values import parse_duration
    from penstock.rates import simulate as simulator
    from penstock.rates.picture import picture as drawn

    with outcome(debug=debug):
        with refusing("--interval"):
            interval_ms = None if interval is None else parse_duration(interval).micros / 1000
        if adaptive and estimator is not Estimator.COST_MODEL:
            raise typer.BadParameter("only the cost model advises an interval", param_hint="--adaptive")
        plant, own_ms, notes = _plant(metrics, load, project)
        if interval_ms is None:
            interval_ms = _SECOND if own_ms is None else own_ms
        with _refusing_numbers():
            made = _estimator(estimator, rate, interval_ms)
            changed = {"fixed_ms": fixed_ms, "row_ms": row_ms, "noise": noise}
            plant = _with_costs(plant, pauses, pause_ms, changed)
            result = simulator.simulate(
                plant,
                made,
                interval_ms=interval_ms,
                adapts=simulator.Interval.ADAPTIVE if adaptive else simulator.Interval.FIXED,
                first_rate=first_rate,
                max_rate=max_rate,
                seed=seed,
            )
        if picture is not None:
            _write(
                picture,
                drawn(
                    {estimator.value: result}, plant.load, f"{metrics}: {estimator.value}, {interval_ms / 1_000:g} s"
                ),
            )
        if json:
            write_json(_to_json(metrics, estimator, plant, result))
            return
        show(_table(result), "", *notes, *_summary(plant, result))


@contextmanager
def _refusing_numbers() -> Iterator[None]:
    """Turn a number that is out of range into an error of the command line."""
    try:
        yield
    except ConfigError as why:
        raise typer.BadParameter(why.what) from None


def _estimator(kind: Estimator, rate: float | None, interval_ms: float) -> RateEstimator | None:
    from penstock.rates import Constant, CostModel, PIDRateEstimator

    if (rate is not None) is not (kind is Estimator.CONSTANT):
        raise typer.BadParameter("give it with --estimator constant, and only there", param_hint="--rate")
    if rate is not None:
        return Constant(rate)
    match kind:
        case Estimator.PID:
            return PIDRateEstimator(interval_ms)
        case Estimator.COST_MODEL:
            return CostModel(interval_ms)
        case _:
            return None


def _plant(metrics: str, steps: list[str] | None, project: Path | None) -> tuple[Plant, float | None, list[str]]:
    """Return what to simulate, the interval of its job in milliseconds, and what to say of it."""
    from penstock.rates.simulate import Plant
    from penstock.runtime.inspect.history import read_history

    if metrics == _PLANT:
        return Plant(load=_load(steps or list(_BURST))), None, []
    if steps:
        raise typer.BadParameter("the log of a job says what arrived; leave it out", param_hint="--load")
    history = read_history(project_at(project).settings(metrics), metrics)
    costs = f"{history.plant.fixed_ms:,.0f} ms a batch and {history.plant.row_ms * 1000:,.1f} ms for 1,000 rows"
    guess = "" if history.settled else "; its batches hardly differ in rows, so these two are a guess"
    every = "" if history.interval_ms is None else f" in an interval of {history.interval_ms / 1_000:g} s"
    return history.plant, history.interval_ms, [f"{metrics}: {history.batches} batches{every}, fitted {costs}{guess}"]


def _load(steps: list[str]) -> Load:
    from penstock.config.values import parse_duration
    from penstock.rates.load import Load

    parsed = []
    for step in steps:
        length, _, rows = step.rpartition("=")
        try:
            rate = float(rows)
        except ValueError:
            length = ""
        if not length:
            raise typer.BadParameter(f'{step!r} is no step; write it as "60 seconds=100"', param_hint="--load")
        with refusing("--load"):
            parsed.append((parse_duration(length).seconds, rate))
    with _refusing_numbers():
        return Load.of_steps(parsed)


def _with_costs(plant: Plant, pauses: float, pause_ms: float, given: dict[str, float | None]) -> Plant:
    from dataclasses import replace

    costs: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(plant, pause_chance=pauses, pause_ms=pause_ms, **costs)


def _table(simulation: Simulation) -> Table:
    table = columns(*_NUMBERS, right=_NUMBERS)
    for batch in simulation.batches:
        table.add_row(
            str(batch.batch),
            f"{batch.second:,.1f}",
            f"{batch.rows:,}",
            "" if batch.rate is None else f"{batch.rate:,.0f}",
            f"{batch.delay_ms:,.0f}",
            f"{batch.batch_ms:,.0f}",
            f"{batch.late_ms:,.0f}",
            f"{batch.left:,}",
            f"{batch.interval_ms:,.0f}",
        )
    return table


def _summary(plant: Plant, simulation: Simulation) -> list[str]:
    batches = simulation.batches
    if not batches:
        return ["no rows arrived, so no batch ran"]
    late = sum(batch.late_ms > 0 for batch in batches)
    read, arrived = sum(batch.rows for batch in batches), plant.load.arrived(plant.load.end)
    left = f"{late:,} of them late; {batches[-1].left:,} rows left"
    slowest = max(batch.batch_ms for batch in batches)
    return [
        f"{read:,} of {arrived:,.0f} rows in {len(batches):,} batches, {left}",
        f"worst delay {simulation.worst_delay_ms():,.0f} ms, worst batch {slowest:,.0f} ms",
    ]


def _to_json(metrics: str, estimator: Estimator, plant: Plant, simulation: Simulation) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "metrics": metrics,
        "estimator": estimator.value,
        "fixed_ms": plant.fixed_ms,
        "row_ms": plant.row_ms,
        "noise": plant.noise,
        "worst_delay_ms": simulation.worst_delay_ms(),
        "batches": [asdict(batch) for batch in simulation.batches],
    }


def _write(path: Path, text: str) -> None:
    with refusing("--picture"):
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as why:
            raise ValueError(f"cannot write {path}: {why.strerror}") from None
