"""Draw the timelines of docs/operators by runs of the Harness: rows as they came, and what each operator made of them.

python -m tools.operator_timelines            # print them
python -m tools.operator_timelines --write    # put them in place
"""

from __future__ import annotations

import sys
import tempfile

from penstock.testing import Harness
from tools.drawings import PICTURES
from tools.timeline import Bar, Dot, Lane, Timeline, drawn
from tools.timeline_scenarios import SCENARIOS, Scenario, seconds_of

__all__ = ["SCENARIOS", "picture"]


def timeline(scenario: Scenario) -> Timeline:
    """Run a scenario, and return what happened."""
    inputs: dict[str, list[Dot]] = {}
    outputs: dict[str, list[Dot]] = {}
    bars: list[Bar] = []
    watermarks: list[float | None] = []
    with tempfile.TemporaryDirectory() as root, Harness(scenario.build(), root) as h:
        for number, fed in enumerate(scenario.batches):
            for source, rows in fed.items():
                dots = [Dot(at=seconds_of(row["t"]), label=scenario.label(row), batch=number) for row in rows]
                inputs.setdefault(source, []).extend(dots)
            for table in scenario.tables.keys() & fed.keys():
                scenario.tables[table](fed[table])
            for sink, made in h.batch({name: fed[name] for name in fed if name not in scenario.tables}).items():
                for row in made:
                    label = scenario.shown(row)
                    if scenario.spans and sink == "out":
                        start, end = seconds_of(row["window_start"]), seconds_of(row["window_end"])
                        bars.append(Bar(start=start, end=end, label=label, batch=number))
                    else:
                        dot = Dot(at=scenario.at(row), label=label, batch=number)
                        outputs.setdefault(sink, []).append(dot)
            closed = [mark for mark in h.commit().watermarks_in.values() if mark is not None]
            watermarks.append(closed[0] / 1_000_000 if closed else None)
    return Timeline(
        title=scenario.title,
        inputs=[Lane(name=name, dots=dots) for name, dots in inputs.items()],
        outputs=[Lane(name=name, dots=dots) for name, dots in outputs.items()],
        bars=bars,
        watermarks=watermarks,
        ticks=scenario.ticks,
    )


def picture(name: str) -> str:
    """Return a picture, drawn of a run that is made now."""
    return drawn(timeline(SCENARIOS[name]))


def main() -> int:
    """Print the pictures, or put them in place."""
    for name in SCENARIOS:
        made = picture(name)
        if "--write" in sys.argv[1:]:
            (PICTURES / f"operator-{name}.svg").write_text(made, encoding="utf-8")
        else:
            print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
