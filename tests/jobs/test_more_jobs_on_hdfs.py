"""More suites of jobs on a real HDFS: what they need of it, those of test_jobs_on_hdfs and the store's own tests claim."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_jobs_on_hdfs
import test_snapshots_writer as data
import test_state_functions_in_jobs as state
import test_state_rewrite as restores

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.soak]
tmp_path = test_jobs_on_hdfs.tmp_path

test_7_2_idle_keys = state.test_7_2_a_key_expires_strictly_behind_its_timeout_and_not_with_a_row
test_7_8_timers = state.test_7_8_timers_fire_once_in_the_order_of_their_times
test_7_5_update = state.test_7_5_update_state_by_key_calls_for_every_key_in_every_batch
test_evolution = state.test_state_goes_on_with_a_new_a_wider_and_a_moved_column
test_crashes = data.test_a_crash_in_the_batch_that_stands_on_a_base_loses_nothing
test_sweeping = data.test_segments_that_a_base_stands_for_are_swept
test_rescaling = restores.test_two_steps_are_rescaled_together_whatever_their_numbers
test_exporting = restores.test_what_was_rescaled_can_be_saved_exported_and_gone_back_to_at_once


def test_10_1_snapshots(tmp_path: Path) -> None:
    """State, timers and positions come back from the tables."""
    restores.test_a_restore_to_a_snapshot_is_one_to_its_batch_whatever_was_purged(tmp_path, "both")
