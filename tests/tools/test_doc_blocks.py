"""`tools/doc_blocks.py`: the examples of a page are found."""

from __future__ import annotations

import pytest

from tools.doc_blocks import Block, python_blocks

PAGE = """# Title

```python
a = 1

b = 2
```
Text.

<!-- no-run -->

```python
c = connect()
```
```
not python
```
```pythonic
neither
```
```python title="x"
d = 4
```
"""


def test_blocks_are_found_in_order_with_their_line():
    """Only those fenced as python; a mark before a block keeps it from being run."""
    assert list(python_blocks(PAGE)) == [
        Block(4, "a = 1\n\nb = 2\n", runs=True),
        Block(13, "c = connect()\n", runs=False),
        Block(22, "d = 4\n", runs=True),
    ]


def test_an_error_in_a_block_names_the_line_of_the_page():
    """So that a failing example is found at once."""
    block = next(python_blocks("text\n\n```python\na = 1\nb = a / 0\n```\n"))
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile(block.at_its_line(), "page.md", "exec"), {})  # noqa: S102 - the block above
    assert raised.traceback[-1].lineno == 4


def test_a_block_that_is_not_closed_is_an_error():
    """Otherwise the rest of the page would pass without being run."""
    with pytest.raises(ValueError, match="line 3"):
        list(python_blocks("a\n\n```python\nb = 1\n"))
