"""Show how far a demo is: a bar that moves on a terminal, otherwise a line every few batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["Screen"]

_LINE_EVERY = 10


class Screen:
    """Print what a demo does, and the progress of its stream.

    Args:
        console: Where to print.
        rows: How many rows the stream reads in all.
        rows_done: Returns how many of them are read, from an event of the driver that has begun or committed a batch.
    """

    def __init__(self, console: Console, *, rows: int, rows_done: Callable[[Mapping[str, Any]], int]) -> None:
        self.console = console
        self.rows = rows
        self._rows_done = rows_done
        self._bar: Progress | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw while the block runs; the terminal is given back whatever ends it."""
        if not self.console.is_terminal:
            yield
            return
        columns = (TextColumn("{task.percentage:>3.0f}%  {task.fields[said]}"), TimeElapsedColumn())
        self._bar = Progress(
            TextColumn("  {task.description}"), BarColumn(bar_width=26), *columns, console=self.console
        )
        self._bar.add_task("Spark starts", total=self.rows, said="")
        try:
            with self._bar:
                yield
        finally:
            self._bar = None

    def event(self, event: Mapping[str, Any]) -> None:
        """Show one event of the driver."""
        if event.get("event") not in ("run.took_over", "batch.committed"):
            return
        begins = event["event"] == "run.took_over"
        batch, done = event["next_batch" if begins else "batch"], self._rows_done(event)
        if self._bar is not None:
            bar, task = self._bar, self._bar.task_ids[0]
            bar.update(task, completed=done, description="replaying   ", said=f"batch {batch}")
        elif begins:
            self.say(f"Spark is up; the first batch is {batch}")
        elif batch % _LINE_EVERY == 0 or done == self.rows:
            self.say(f"batch {batch:>2}: {done:>7,} of {self.rows:,} rows, {event['ms']:,.0f} ms")

    def say(self, text: str) -> None:
        """Print one line of detail."""
        self.console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)

    def head(self, text: str) -> None:
        """Print what comes next."""
        self.console.print(f"\n[bold]{text}[/bold]", highlight=False)

    def compare(self, rows: list[tuple[str, int, int]]) -> None:
        """Print counts, ours beside those of pandas, and mark those that differ."""
        self.say(f"{'':<28}{'Penstock':>10}{'pandas':>10}")
        for name, ours, theirs in rows:
            self.say(f"{name:<28}{ours:>10,}{theirs:>10,}{'' if ours == theirs else '  <-'}")

    def verdict(self, problems: list[str], seconds: float) -> bool:
        """Print how a demo has ended, and return whether all is equal."""
        if problems:
            self.head(f"Not equal. {seconds:,.0f} s")
            for problem in problems:
                self.say(problem)
        else:
            self.console.print(f"\n[bold green]All equal.[/bold green] {seconds:,.0f} s\n", highlight=False)
        return not problems
