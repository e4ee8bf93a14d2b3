"""Run `penstock explain`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from penstock.cli.outcome import outcome, show
from penstock.runtime.inspect.explain import Section, explain_analysis, explain_graph
from penstock.runtime.process.launch import spark_of
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import LoadedJob, find_project

__all__ = ["explain_command"]


def explain_command(job: str, *, with_spark: bool, project: Path | None, debug: bool) -> None:
    """Print steps, batch and guarantees of the job; with Spark also the results of its analysis."""
    configure_events(json=False)
    with outcome(debug=debug):
        loaded = find_project(given=project).load(job)
        _show_sections(explain_graph(loaded.job.graph()))
        if with_spark:
            _show_sections(_analysed(loaded))


def _show_sections(sections: Sequence[Section]) -> None:
    for section in sections:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for left, right in section.rows:
            table.add_row(Text(left, style="cyan"), Text(right))
        show(Text(section.title, style="bold"), table)


def _analysed(loaded: LoadedJob) -> list[Section]:
    from penstock.quality.suite_files import find_suites
    from penstock.runtime.spark.engine import SparkEngine

    graph = loaded.job.graph()
    with spark_of(loaded, here=True) as spark:
        # Not `prepare`: the first thing that writes.
        engine = SparkEngine(
            graph,
            spark,
            folder=loaded.settings.root / graph.name,
            suites=find_suites(graph, loaded.project.quality),
        )
        return explain_analysis(engine.built.steps, engine.built.sink_schemas)
