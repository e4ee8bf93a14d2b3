"""A cache has a level, and is a step like any other."""

import pytest

from penstock import CacheLevel, Job
from penstock.errors import JobError
from penstock.graph.cache import CacheNode
from penstock.sinks import MemorySink
from penstock.sources import MemorySource


def test_a_cache_goes_to_memory_and_disk_unless_it_says_otherwise() -> None:
    """The safe one: nothing is computed twice for want of memory."""
    job = Job("j")
    rows = job.source("s", MemorySource("v int")).cache().filter("v > 1").cache(level=CacheLevel.DISK)
    rows.write("out", MemorySink())
    levels = [node.level for node in job.graph().nodes if isinstance(node, CacheNode)]
    assert levels == [CacheLevel.MEMORY_AND_DISK, CacheLevel.DISK]


@pytest.mark.parametrize("level", ["disk", None, CacheLevel])
def test_another_level_is_refused_at_its_line(level) -> None:
    """When the job is written."""
    with pytest.raises(JobError, match=r"CacheLevel\.DISK") as refused:
        Job("j").source("s", MemorySource("v int")).cache(level=level)
    assert str(refused.value.where).startswith(__file__)
