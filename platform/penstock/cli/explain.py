"""`penstock explain JOB`: show the steps of a job, its batch and its guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Debug, JobName, ProjectFolder
from penstock.cli.outcome import outcome, project_at, show

if TYPE_CHECKING:
    from penstock.runtime.inspect.explain import Section
    from penstock.runtime.process.project import LoadedJob

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def explain(
    job: JobName,
    *,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Leave out what needs Spark's analysis: types, strategies.")
    ] = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show the steps of a job and its delivery guarantees.

    The command shows the steps with their lines, the Spark job of a batch and its stages. It also shows the guarantee
    of each path from a source to a sink, exactly-once or at-least-once.

    Spark analyses every column and expression and reports errors in them. Nothing is written.

    \b
    Examples:
      penstock explain flights
      penstock explain flights --no-spark        at once
    """  # noqa: D301 - click knows the character, not the two
    from penstock.runtime.inspect.explain import explain_graph
    from penstock.runtime.process.choices import refuse_disagreement

    with outcome(debug=debug):
        loaded = project_at(project).load(job)
        refuse_disagreement(loaded.job, loaded.settings)
        _show_sections(explain_graph(loaded.job.graph()))
        if not no_spark:
            _show_sections(_analysed(loaded))


def _show_sections(sections: Sequence[Section]) -> None:
    from rich.table import Table
    from rich.text import Text

    for section in sections:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for left, right in section.rows:
            table.add_row(Text(left, style="cyan"), Text(right))
        show(Text(section.title, style="bold"), table)


def _analysed(loaded: LoadedJob) -> list[Section]:
    from penstock.runtime.inspect.explain import explain_analysis
    from penstock.runtime.process.launch import analysed

    with analysed(loaded, loaded.settings.root / loaded.job.name) as engine:
        return explain_analysis(engine.built.steps, engine.built.sink_schemas)
