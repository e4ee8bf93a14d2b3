"""Say what to call instead of a method that does not exist, such as those of other systems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import UnknownMethod
from penstock.graph.source_location import job_error

__all__ = ["METHODS_OF_KEYED_STREAMS", "METHODS_OF_STREAMS", "METHODS_OF_WINDOWS", "NamedMethods", "advised"]


def advised(*lines: tuple[str, str]) -> Mapping[str, str]:
    """Return what to call instead of each method; a line has methods of other systems, and the advice for them."""
    return {name: advice for names, advice in lines for name in names.split()}


METHODS_OF_WINDOWS = advised(
    ("count size count_all count_globally", ".aggregate(n=agg.count())"),
    ("sum min max mean avg agg first last stddev variance quantile top", ".aggregate(total=agg.sum('v')) and the like"),
    ("count_by_value count_per_element count_per_key", "key_by of the value, then .aggregate(n=agg.count())"),
    ("approx_count_distinct count_distinct distinct", ".aggregate(n=agg.count_distinct('v'))"),
    (
        "reduce fold combine combine_per_key combine_globally reduce_by_key reduce_groups",
        ".aggregate(total=agg.custom(…)), with a function of two values",
    ),
    (
        "collect collect_list collect_set group group_by_key rows to_list",
        ".aggregate(all=agg.collect('v', limit=1_000))",
    ),
    (
        "process map flat_map map_groups foreach for_each process_window_function window_all apply_in_pandas select",
        ".apply(fn, output='k string, v long'), whose fn gets all rows of a window",
    ),
    ("trigger evictor evict", "GlobalWindow().trigger(…).evict(…), given to window()"),
    ("early_results emit_early suppress", ".emit_every(…) of the spec, given to window()"),
    (
        "allowed_lateness grace side_output_late_data late_to drop_late update_late",
        "the same of the spec: window(name, Tumbling(…).late_to('late'))",
    ),
    (
        "write filter with_columns key_by check join union foreach_batch",
        ".aggregate(…) or .apply(…) first, which return a stream",
    ),
)
METHODS_OF_STREAMS = advised(
    (
        "map map_values with_column withcolumn",
        "with_columns(w='v * 2') or select(…) in SQL, or map_batches(name, fn, output=…)",
    ),
    (
        "flat_map flat_map_values explode map_partitions map_in_arrow map_in_pandas par_do map_elements",
        "map_batches(name, fn, output=…), whose fn may return several rows for one",
    ),
    ("where filter_not", "filter('v > 0')"),
    ("drop", "select('* EXCEPT (v)')"),
    ("group_by group_by_key", "key_by('k')"),
    (
        "sum min max mean avg agg aggregate apply count reduce fold combine_per_key combine_globally",
        "window(name, …).aggregate(total=agg.sum('v')), or map_with_state for a total without end",
    ),
    (
        "reduce_by_key count_by_value reduce_by_window reduce_by_key_and_window count_by_window window_all time_window",
        "window(name, BatchWindow(…)), which has reduce_by_key, count, count_by_value and group, or another window",
    ),
    (
        "process transform_with_state apply_in_pandas_with_state map_groups_with_state flat_map_groups_with_state",
        "map_with_state(name, fn, …) for a row at a time, or map_with_state_arrow",
    ),
    ("drop_duplicates drop_duplicates_within_watermark distinct", "deduplicate(name, by=…, within=…)"),
    (
        "connect co_group cogroup join_window interval_join left_outer_join full_outer_join co_group_by_key",
        "join(name, other, within=…), or union",
    ),
    (
        "with_watermark assign_timestamps_and_watermarks assign_timestamps",
        "job.source(…, event_time='t', max_out_of_order=seconds(10))",
    ),
    ("sink_to add_sink write_stream to print pprint show save_as_text_files output", "write(name, sink)"),
    ("foreach_rdd foreach for_each foreach_partition", "foreach_batch(name, fn)"),
    ("persist", "cache()"),
    ("checkpoint", "checkpoint(every=…) of the job"),
    (
        "repartition coalesce rebalance rescale shuffle partition_by set_parallelism",
        "partitions= of the step with state",
    ),
    ("get_side_output side_output late", "job.late(name) or job.quarantine(name)"),
)
"""By their names in other systems, in lower case and with underscores."""
METHODS_OF_KEYED_STREAMS = {
    **METHODS_OF_STREAMS,
    **advised(
        (
            "filter select with_columns transform map_batches union check cache join_static key_by",
            "the same before key_by",
        ),
        ("write foreach_batch snapshots", "a step with state first: its output is a stream again"),
    ),
}

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class NamedMethods:
    """Raise UnknownMethod, which lists the methods that there are, for any other one."""

    advice: ClassVar[Mapping[str, str]]
    """What to call instead of a method of another system."""
    _internal: ClassVar[frozenset[str]] = frozenset({"advice"})
    """The public names that are no methods for jobs."""

    def _subject(self) -> str:
        """Return what has the methods, in words."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # a checker of types would take any method for one that is there

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # asked by Python, as for a copy
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            known = sorted(n for n in dir(type(self)) if not n.startswith("_") and n not in self._internal)
            word = _CAPITAL.sub("_", name).lower()
            instead = f"; use {self.advice[word]}" if word in self.advice else ""
            what = f"{self._subject()} has no method {name!r}{instead}. It has {', '.join(known)}"
            raise job_error(what, UnknownMethod)
