"""Draw the pictures of docs/pictures that explain the engine's own terms.

python -m tools.drawings            # print them
python -m tools.drawings --write    # put them in place
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.h{font-weight:600}.c{font:12px ui-monospace,monospace}"
    ".l{stroke:#8c959f;fill:none}.a{stroke:#8c959f;fill:none;marker-end:url(#e)}.f{fill:none;stroke:#8c959f}"
    ".d{fill:none;stroke:#8c959f;stroke-dasharray:5 4}.s{fill:#54aeff33;stroke:#54aeff}"
    ".w{fill:#4ac26b33;stroke:#4ac26b}.o{fill:#bf870033;stroke:#bf8700}@media(prefers-color-scheme:dark){text{fill:#c9d1d9}}"
)
_ARROW = (
    '<defs><marker id="e" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#8c959f"/></marker></defs>'
)


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return a line of text whose baseline begins at x, y."""
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{name}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, *lines: str) -> str:
    """Return a rectangle with lines of text in it, from its upper left corner on."""
    words = [text(x + 8, y + 17 + 16 * number, line) for number, line in enumerate(lines)]
    return "\n".join(
        [f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"/>', *words]
    )


def line(kind: str, *points: tuple[float, float]) -> str:
    """Return a line through points; of kind `a` it ends in an arrow."""
    return f'<path class="{kind}" d="M{" L".join(f"{x:g} {y:g}" for x, y in points)}"/>'


def svg(width: int, height: int, label: str, *shapes: str) -> str:
    """Return a picture; the label is what a screen reader says."""
    size = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg {size} role="img" aria-label="{escape(label)}">',
            f"<style>{_STYLE}</style>",
            _ARROW,
            *shapes,
            "</svg>\n",
        ]
    )


def state_picture() -> str:
    """Draw part, chain, run, segment, section and block of one state partition."""
    return svg(
        720,
        384,
        "A manifest has a chain of runs for each part; rows of a run lie in sections of segment files, cut into blocks",
        text(10, 22, "The manifest of batch 42: one partition of a step", "h"),
        box(10, 32, 700, 112, "d"),
        text(20, 75, "part state", "h"),
        text(20, 123, "part timers", "h"),
        text(112, 50, "chain: the runs of a part, oldest first"),
        box(112, 56, 300, 28, "s", "run 1, compacted by batch 30"),
        box(420, 56, 150, 28, "s", "run 4, batch 41"),
        box(578, 56, 122, 28, "s", "run 6, batch 42"),
        box(112, 104, 300, 28, "w", "run 2"),
        box(420, 104, 150, 28, "w", "run 5"),
        text(20, 190, "segments", "h"),
        text(20, 208, "Arrow files"),
        box(112, 170, 300, 76, "f"),
        box(120, 178, 196, 36, "s", "section of run 1"),
        box(320, 178, 84, 36, "w", "run 2"),
        text(120, 236, "000000000030-….arrow", "c"),
        box(420, 170, 150, 76, "f"),
        box(428, 178, 66, 36, "s", "run 4"),
        box(498, 178, 64, 36, "w", "run 5"),
        text(428, 236, "…041-….arrow", "c"),
        box(578, 170, 122, 76, "f"),
        box(586, 178, 106, 36, "s", "run 6"),
        text(586, 236, "…042-….arrow", "c"),
        line("a", (260, 84), (260, 176)),
        line("a", (362, 132), (362, 176)),
        line("a", (484, 84), (484, 176)),
        line("a", (530, 132), (530, 176)),
        line("a", (640, 84), (640, 176)),
        text(20, 302, "blocks", "h"),
        text(20, 320, "crc32 each"),
        line("l", (120, 214), (112, 282)),
        line("l", (316, 214), (412, 282)),
        box(112, 282, 96, 48, "s", "16 MiB", "hash -9…-4"),
        box(214, 282, 96, 48, "s", "16 MiB", "hash -4…3"),
        box(316, 282, 96, 48, "s", "5 MiB", "hash 3…9"),
        text(430, 299, "Rows of a run are sorted by group,"),
        text(430, 315, "then by hash of the key. A lookup opens"),
        text(430, 331, "the blocks whose range has the hash."),
        text(112, 366, "Batch 42 wrote run 6 alone; compaction merges neighbouring runs into one."),
    )


def plan_picture() -> str:
    """Draw port, branch, leaf, shuffle and hop in the Spark job of a batch, and the driver's stages of that batch."""
    stages = ("FixOffsets", "Compute", "CommitBatch", "PublishSinks", "AckSources", "Purge")
    kinds = {"Compute": "s"}
    return svg(
        720,
        410,
        "The Spark job of a batch: branches lead from ports to leaves, a shuffle brings rows to their state partitions",
        text(10, 22, "The Spark job of a batch", "h"),
        box(10, 32, 318, 210, "d"),
        text(20, 52, "Spark stage 1: a task per source partition"),
        box(20, 66, 96, 44, "o", "port", "departures"),
        text(136, 74, "branch"),
        box(136, 80, 90, 30, "s", "filter"),
        box(246, 66, 72, 60, "w", "leaf", "partial", "sums"),
        line("a", (116, 94), (134, 94)),
        line("a", (226, 94), (244, 94)),
        box(20, 168, 96, 44, "o", "port", "bad records"),
        text(136, 176, "branch"),
        box(136, 182, 90, 30, "s", "select"),
        box(246, 168, 72, 44, "w", "leaf", "sink"),
        line("a", (116, 196), (134, 196)),
        line("a", (226, 196), (244, 196)),
        text(340, 84, "shuffle"),
        text(334, 112, "by key hash"),
        box(414, 32, 296, 210, "d"),
        text(424, 52, "Spark stage 2: a task per state partition"),
        box(424, 66, 104, 76, "s", "step hourly", "merge state,", "emit windows"),
        line("a", (318, 94), (422, 94)),
        box(546, 66, 64, 44, "o", "port", "hourly"),
        box(546, 168, 64, 44, "o", "port", "late"),
        line("a", (528, 88), (544, 88)),
        line("a", (528, 130), (537, 130), (537, 190), (544, 190)),
        box(630, 66, 72, 60, "w", "leaf", "check,", "sink"),
        box(630, 168, 72, 44, "w", "leaf", "sink"),
        line("a", (610, 88), (628, 88)),
        line("a", (610, 190), (628, 190)),
        text(638, 142, "hop"),
        text(638, 228, "hop"),
        text(
            10, 268, "port: a stream that Python code produces. branch: filters and projections from a port to a leaf."
        ),
        text(10, 286, "hop: a branch that stays within the task, without another shuffle."),
        text(10, 338, "The driver's stages of the batch: Compute is the Spark job above", "h"),
        *(box(10 + 117 * at, 354, 107, 28, kinds.get(name, "f"), name) for at, name in enumerate(stages)),
        *(line("a", (117 + 117 * at, 368), (126 + 117 * at, 368)) for at in range(len(stages) - 1)),
    )


DRAWINGS: Mapping[str, Callable[[], str]] = {"state.svg": state_picture, "plan.svg": plan_picture}


def main() -> int:
    """Write the drawings where the command says `--write`, else print them."""
    for name, draw in DRAWINGS.items():
        if sys.argv[1:] == ["--write"]:
            (PICTURES / name).write_text(draw(), encoding="utf-8")
        else:
            print(draw())
    return 0


if __name__ == "__main__":
    sys.exit(main())
