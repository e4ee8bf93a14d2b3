"""Fit a report's file into the pages: a way back above it, and of Great Expectations' pages what works without scripts.

Those load their style, a logo and scripts from the internet, which the policy of the pages forbids. Without scripts
their buttons do nothing, and folded sections could never be opened.
"""

from __future__ import annotations

import re

__all__ = ["tidied", "with_bar"]

_BODY = re.compile(r"<body[^>]*>", re.IGNORECASE)
_START = re.compile(r"\s*(<!doctype[^>]*>)?", re.IGNORECASE)
_DEAD = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"<script\b.*?</script>",
        r"<link\b[^>]*\bhref=[\"\']https?:[^>]*>",
        r"<footer\b.*?</footer>",
        r"<img\b[^>]*\bsrc=\s*[\"\']https?:[^>]*>",
        r"<p[^>]*>\s*<a\b[^>]*data-toggle=[\"\']collapse[\"\'].*?</a>\s*</p>",
        r"<div class=\"card mb-3\">\s*<div class=[^>]*>\s*<strong>Actions.*?Failed Only\s*</label>(?:\s*</div>){5}",
        r"url\(\s*[\"\']?https?:[^)]*\)",
    )
]
_LOOKS = """<style>
:root { color-scheme: light dark; --line: light-dark(#d0d7de, #3a4148); --panel: light-dark(#f3f5f7, #1e2226); }
body { margin: 0 auto; padding: 0 1rem 2rem; max-width: 84rem; font: 15px/1.5 system-ui, sans-serif;
  background: light-dark(#fff, #14171a); color: light-dark(#1b1f24, #e6e8ea); overflow-wrap: anywhere; }
a { color: light-dark(#0b57d0, #8ab4f8); } table { border-collapse: collapse; margin: .5rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
.table-responsive { overflow-x: auto; }
.alert, .card-header { background: var(--panel); padding: .4rem .75rem; border-radius: 4px; }
.card { border: 1px solid var(--line); border-radius: 6px; margin: .75rem 0; } .card-body { padding: .5rem .75rem; }
ul.nav, ol.breadcrumb { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; }
.badge { border: 1px solid currentcolor; border-radius: 1rem; padding: 0 .5rem; font-size: .85rem; }
.fa-check-circle::before { content: "✓"; color: light-dark(#116329, #7ee2a8); }
.fa-times::before { content: "✖"; color: light-dark(#b3261e, #ff9d94); }
.fa-exclamation-triangle::before { content: "▲"; color: light-dark(#7a4b00, #f2c063); }
</style>"""


def with_bar(text: str, bar: str) -> str:
    """Return a page with something at its top; `bar` is HTML that is safe."""
    body = _BODY.search(text) or _START.match(text)
    end = body.end() if body is not None else 0
    return f"{text[:end]}{bar}{text[end:]}"


def tidied(text: str) -> str:
    """Return a page of Great Expectations without what cannot work here, and with a style of its own."""
    for dead in _DEAD:
        text = dead.sub("", text)
    return text.replace("</head>", f"{_LOOKS}</head>", 1)
