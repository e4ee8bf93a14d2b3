"""A job's code against a checkpoint, as values: no Spark, no files (F51)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checkpoint_samples import commit, leave, offsets, own

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import ManifestRef, Release, SourceProgress, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import PartitionsChanged, StateMissing, StepsChanged
from penstock.operators.schema_evolution import Evolution
from penstock.runtime.restore.compatibility import Compatibility, compare, refuse, when_left
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Tumbling

pytestmark = pytest.mark.fault("F51")

REF = ManifestRef(path="x.json", size=1, checksum="")
FILE = StagedFile(path="x", size=1, rows=4, checksum="", stats={})
READ = SourceProgress(position={"row": 1}, partitions={}, ended=True)


def graph_of(*steps: str, initial: str | None = None):
    job = Job("job", partitions=8)
    rows = job.source("rows", MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(0))
    for step in steps:
        if initial is None:
            made = rows.key_by("k").window(step, Tumbling(seconds(1)).drop_late()).aggregate(n=agg.count())
        else:
            made = rows.key_by("k").update_state_by_key(step, sum, state="n long", initial=initial)
        made.write(f"{step}_out", MemorySink())
    rows.write("raw", MemorySink())
    return job.graph()


def log_of(**fields):
    """Return a log with batch 0 and, of batch 1, what was said; still held."""
    log = Log(MemoryStore())
    owned = own(log, partitions={"hourly": 8})
    owned.append(offsets(0))
    owned.append(commit(0, state={"hourly": {"0": REF}}, sources={"rows": READ}, **fields))
    return log, owned


def fates(findings):
    return [(finding.name, finding.fate.value) for finding in findings]


def test_without_a_checkpoint_all_is_new():
    """And nothing is refused."""
    findings = compare(graph_of("hourly"), recover(Log(MemoryStore())), {})
    assert fates(findings) == [("hourly", "new"), ("rows", "new"), ("hourly_out", "new"), ("raw", "new")]
    refuse(findings)


def test_what_partitions_tell_is_told_once():
    """Some may have been written since the code changed last."""
    added = Evolution(accepted=("a is new",)) + Evolution(accepted=("a is new", "b is new"))
    log, _ = log_of()
    finding = compare(graph_of("hourly"), recover(log), {"hourly": added})[0]
    assert (finding.fate, finding.says, finding.refusal) == (Compatibility.KEPT, ("a is new", "b is new"), None)
    assert (Evolution(refused=("x",)) + Evolution(refused=("x",))).refused == ("x",)


def test_all_that_does_not_fit_is_told_and_partitions_refuse():
    """A restore changes these, and not the rest."""
    log, _ = log_of()
    recovered = replace(recover(log), partitions={"hourly": 2})
    finding = compare(graph_of("hourly"), recovered, {"hourly": Evolution(refused=("its key is another",))})[0]
    reason = "it has 8 partitions and its state has 2, which a restore with --partitions 8 changes"
    assert finding.says == (reason, "its key is another")
    assert isinstance(finding.refusal, PartitionsChanged)


def test_state_that_cannot_be_read_refuses_with_what_reading_it_raised():
    """The rest is compared all the same."""
    log, _ = log_of()
    findings = compare(graph_of("hourly", "other"), recover(log), {"hourly": StateMissing("x.json is not there")})
    assert [type(finding.refusal) for finding in findings[:2]] == [StateMissing, type(None)]
    with pytest.raises(StateMissing):
        refuse(findings)


def test_a_step_that_was_there_without_state_goes_on_without():
    """Its watermark says that it was there."""
    log, _ = log_of(watermarks_out={"hourly": 5, "other": 5})
    findings = compare(graph_of("hourly", "other", "third"), recover(log), {})
    assert [(finding.fate, finding.says) for finding in findings[1:3]] == [
        (Compatibility.KEPT, ("it has no state yet",)),
        (Compatibility.NEW, ("it starts empty",)),
    ]


def test_what_a_step_begins_with_is_loaded_before_the_first_batch_only():
    """SEMANTICS 7.3."""
    log, _ = log_of()
    finding = compare(graph_of("later", initial="seed"), recover(log), {}, drop=["hourly"])[0]
    assert finding.says == ("it starts empty: initial= is loaded before a job's first batch only",)
    finding = compare(graph_of("later", initial="seed"), recover(Log(MemoryStore())), {})[0]
    assert finding.says == ("it starts with its initial state",)


def test_a_source_that_has_ended_says_so():
    """Nothing of it is read any more."""
    log, _ = log_of()
    findings = {finding.name: finding for finding in compare(graph_of("hourly"), recover(log), {})}
    assert findings["rows"].says == ("it was read to its end, or drained",)


def test_a_sink_may_go_when_a_release_says_that_its_rows_are_published():
    """Or when the driver that runs will say so."""
    log, owned = log_of(staged={"gone": [FILE], "raw": []})
    recovered = recover(log)
    with pytest.raises(StepsChanged, match="batch 0 has 4 rows for sink 'gone'"):
        refuse(compare(graph_of("hourly"), recovered, {}))
    refuse(compare(graph_of("hourly"), when_left(recovered), {}))
    owned.append(Release(epoch=1, writer="w1", reason="stopped", published={"gone": 0}))
    findings = {finding.name: finding for finding in compare(graph_of("hourly"), recover(log), {})}
    assert (findings["gone"].fate, findings["gone"].says) == (Compatibility.GONE, ("what it shows stays",))


def test_a_driver_that_runs_will_have_finished_its_batch():
    """What is begun now is not in the way of a source that is new."""
    log, owned = log_of()
    owned.append(offsets(1))
    recovered = recover(log)
    with pytest.raises(StepsChanged, match="batch 1 was begun and knows nothing of step 'hourly'"):
        refuse(compare(graph_of("hourly"), recovered, {}))
    refuse(compare(graph_of("hourly"), when_left(recovered), {}))


def test_findings_are_plain_json():
    """With the code of the error that a start has."""
    log, owned = log_of()
    leave(owned)
    finding = compare(graph_of(), recover(log), {})[0]
    assert finding.to_json() == {
        "kind": "step",
        "name": "hourly",
        "fate": "dropped",
        "says": ["its state would be lost; --drop hourly lets it go"],
        "refused": {
            "code": "PEN-CKP-016",
            "what": "the checkpoint has state of step 'hourly', and the job has only none",
        },
    }
