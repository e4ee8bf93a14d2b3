"""A checkpoint is copied away, and another goes on from the copy (SEMANTICS 10.2; issue 5, export and import)."""

from __future__ import annotations

import json
import shutil

import pytest
from test_state_rewrite import feeds, job_of, rows_of
from typer.testing import CliRunner

from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.errors import CannotCopy, CannotRestore, CheckpointCorrupt, StateMissing
from penstock.runtime.driver.settings import Identity
from penstock.runtime.restore.export import export_checkpoint, import_checkpoint
from penstock.runtime.restore.target import RestoreTarget
from penstock.testing import Harness

pytestmark = pytest.mark.sample(3, of="exports")

ME = Identity(holder="tests")


def exported(root, target, start=None):
    """Export the newest batch, or another."""
    return export_checkpoint(root / "restored", target, start or RestoreTarget(), job="restored", now=7)


def imported(source, root):
    """Import under the job's own name."""
    return import_checkpoint(source, root / "restored", identity=ME, now=9)


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", ["idle", "stacks"])
def test_an_import_goes_on_as_the_old_one_would(tmp_path, form):
    """State, timers, open windows, watermarks, positions and batch ids; beside the old one, which goes on too."""
    fed = feeds(form, 12)
    with Harness(job_of(form, partitions=2), tmp_path / "a") as old:
        for batch, rows in enumerate(fed[:7]):
            old.batch({"rows": rows}, at=10 * (batch + 1))
        made = exported(tmp_path / "a", tmp_path / "export")
        at = old.commit().batch
        assert (made.commit.batch, made.partitions) == (at, {"step": 2})
        shutil.copytree(tmp_path / "export", tmp_path / "elsewhere")
        imported(tmp_path / "elsewhere", tmp_path / "b")
        job = job_of(form, partitions=2)
        job.graph().sources[0].source.continue_from(old.job.graph().sources[0].source)
        with Harness(job, tmp_path / "b") as new:
            assert rows_of({"out": new.state("step")}) == rows_of({"out": old.state("step")})
            for batch, rows in enumerate(fed[7:], 7):
                clock = {"at": 10 * (batch + 1)}
                wanted = rows_of(old.batch({"rows": rows}, **clock))
                assert rows_of(new.batch({}, **clock)) == wanted, "of the same source"
            assert new.commit().batch == old.commit().batch
            new.restart()
            assert new.commit().batch == old.commit().batch
    parent = read_metadata(LocalStore(tmp_path / "a" / "restored")).uuid
    child = read_metadata(LocalStore(tmp_path / "b" / "restored"))
    assert (child.parent, child.created) == (parent, 9)
    assert child.uuid != parent


def test_what_was_kept_or_saved_can_be_exported_and_nothing_else(tmp_path):
    """As `--at` says."""
    with Harness(job_of("idle", partitions=1), tmp_path / "a") as h:
        with pytest.raises(CannotCopy, match="no batch is committed"):
            exported(tmp_path / "a", tmp_path / "none")
        for n in range(3):
            h.batch({"rows": [{"k": "a", "v": n + 1}]})
            if n == 1:
                h.save("early")
        for number, start in enumerate(
            (RestoreTarget(restore=True, batch=0), RestoreTarget(restore=True, saved="early"))
        ):
            made = exported(tmp_path / "a", tmp_path / f"export{number}", start)
            assert made.commit.batch == number
        with pytest.raises(CannotRestore):
            exported(tmp_path / "a", tmp_path / "none", RestoreTarget(restore=True, batch=9))
        with pytest.raises(CannotCopy, match="the folder is there already"):
            exported(tmp_path / "a", tmp_path / "export0")
    assert not (tmp_path / "none").exists()
    imported(tmp_path / "export1", tmp_path / "b")
    with pytest.raises(CannotCopy, match="there is a checkpoint already"):
        imported(tmp_path / "export0", tmp_path / "b")


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "no export.json", "export.json flipped"])
def test_a_damaged_export_is_named_and_nothing_is_made(tmp_path, harm):
    """Each of its files is read before the checkpoint has its place."""
    with Harness(job_of("idle", partitions=1), tmp_path / "a") as h:
        h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(50)]})
    exported(tmp_path / "a", tmp_path / "export")
    path = next((tmp_path / "export").glob("state/*/*/*.arrow"))
    if "export.json" in harm:
        path = tmp_path / "export" / "export.json"
    data = bytearray(path.read_bytes())
    if "flip" in harm:
        data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data[:-9]) if harm == "cut" else bytes(data))
    if harm in ("remove", "no export.json"):
        path.unlink()
    with pytest.raises((CheckpointCorrupt, CannotCopy, StateMissing)):
        imported(tmp_path / "export", tmp_path / "b")
    assert not (tmp_path / "b" / "restored").exists()


def test_an_import_that_was_cut_short_leaves_no_checkpoint_and_can_be_done_again(tmp_path, monkeypatch):
    """A driver that began with half of it would begin with nothing, and nobody would know."""
    from penstock.runtime.restore import export

    with Harness(job_of("idle", partitions=2), tmp_path / "a") as h:
        h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(5)]})
    exported(tmp_path / "a", tmp_path / "export")

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(export, "Release", die)
        with pytest.raises(KeyboardInterrupt):
            imported(tmp_path / "export", tmp_path / "b")
    assert not (tmp_path / "b" / "restored").exists()
    imported(tmp_path / "export", tmp_path / "b")
    with Harness(job_of("idle", partitions=2), tmp_path / "b") as h:
        assert len(h.state("step")) == 5


def one_export(tmp_path):
    """Export a job of five keys, and return the folder."""
    with Harness(job_of("idle", partitions=2), tmp_path / "a") as h:
        h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(5)]})
    exported(tmp_path / "a", tmp_path / "export")
    return tmp_path / "export"


@pytest.mark.fault("F72")
@pytest.mark.parametrize("other", ["finishes", "is killed half-way"])
def test_of_two_imports_at_once_each_has_a_folder_of_its_own(tmp_path, monkeypatch, other):
    """What stands in the end is whole, and of the one that said so."""
    from penstock.runtime.restore import export

    source, move, others = one_export(tmp_path), export.move_into_place, []

    def first_let_another(made_in, place):
        monkeypatch.setattr(export, "move_into_place", move)
        if other == "finishes":
            others.append(imported(source, tmp_path / "b"))
        else:
            with monkeypatch.context() as patched:
                patched.setattr(export, "open_or_create", killed)
                with pytest.raises(KeyboardInterrupt):
                    imported(source, tmp_path / "b")
        move(made_in, place)

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "move_into_place", first_let_another)
    if other == "finishes":
        with pytest.raises(CannotCopy, match="it cannot be moved to its place"):
            imported(source, tmp_path / "b")
        assert [*(tmp_path / "b" / "_importing").iterdir()] == []
    else:
        others.append(imported(source, tmp_path / "b"))
    assert read_metadata(LocalStore(tmp_path / "b" / "restored")).uuid == others[0][1].uuid
    with Harness(job_of("idle", partitions=2), tmp_path / "b") as h:
        assert len(h.state("step")) == 5


@pytest.mark.fault("F72")
def test_an_export_is_never_given_the_folder_that_another_is_writing(tmp_path, monkeypatch):
    """Of two to one place the first has it, whole."""
    from penstock.runtime.restore import export

    one_export(tmp_path)
    move, read = export.move_into_place, []

    def first_let_another(made_in, place):
        monkeypatch.setattr(export, "move_into_place", move)
        read.append(exported(tmp_path / "a", tmp_path / "copy"))
        move(made_in, place)

    monkeypatch.setattr(export, "move_into_place", first_let_another)
    with pytest.raises(CannotCopy, match="it cannot be moved to its place"):
        exported(tmp_path / "a", tmp_path / "copy")
    assert export.read_export(tmp_path / "copy") == read[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "copy", "export"]


@pytest.mark.fault("F65")
@pytest.mark.parametrize("where", ["a segment", "a partition", "export.json", "beside"])
def test_a_symbolic_link_in_an_export_is_refused_and_nothing_is_copied(tmp_path, where):
    """Who imports may read files that who made the export may not."""
    source = one_export(tmp_path)
    secret = tmp_path / "secret"
    segment = next(source.glob("state/*/*/*.arrow"))
    path = {"a segment": segment, "a partition": segment.parent, "beside": source / "more"}.get(where, source / where)
    if path.exists():
        path.rename(secret)
    path.symlink_to(secret)
    with pytest.raises(CannotCopy, match="a symbolic link is not copied") as caught:
        imported(source, tmp_path / "b")
    assert str(path) in str(caught.value)
    assert not (tmp_path / "b").exists()


def test_the_commands(tmp_path):
    """They say what they did, and refuse what they cannot."""
    for folder in ("conf/jobs", "jobs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "conf" / "penstock.toml").write_text('[checkpoint]\nroot = "checkpoints"\n')
    for name in ("restored", "other", "third"):
        (tmp_path / "jobs" / f"{name}.py").write_text("")
    with Harness(job_of("idle", partitions=2), tmp_path / "checkpoints") as h:
        h.batch({"rows": [{"k": "a", "v": 1}]})

    def asked(*words):
        return CliRunner().invoke(app, [*map(str, words), "--project", str(tmp_path)])

    done = asked("export", "restored", tmp_path / "copy")
    assert (done.exit_code, done.output.startswith("restored: batch 0 of ")) == (0, True), done.output
    assert asked("export", "third", tmp_path / "none").exit_code == 78
    assert asked("export", "restored", tmp_path / "none", "--at", "snapshot=1").exit_code == 2
    done = asked("import", tmp_path / "copy", "other", "--json")
    assert json.loads(done.output)["batch"] == 0, done.output
    assert asked("import", tmp_path / "copy", "other").exit_code == 78
    done = asked("state", "other", "step", "--json")
    assert json.loads(done.output)["n"] == 1


def test_an_import_can_be_gone_back_to_and_keeps_its_zero_time(tmp_path):
    """Also before it has a batch of its own, which is when nothing else is kept."""
    with Harness(job_of("idle", partitions=2), tmp_path / "a", zero=5) as h:
        for n in range(3):
            h.batch({"rows": [{"k": "a", "v": n}]}, at=10 * (n + 1))
    exported(tmp_path / "a", tmp_path / "export")
    imported(tmp_path / "export", tmp_path / "b")
    with Harness(job_of("idle", partitions=2), tmp_path / "b", zero=7) as h:
        h.restore(batch=2)
        assert h.state("step")[0]["n"] == 3
        h.batch({"rows": [{"k": "a", "v": 4}]}, at=50)
        assert (h.commit().batch, h.commit().zero, h.state("step")[0]["n"]) == (3, 5_000_000, 7)


@pytest.mark.parametrize("harm", ["step", "partition", "path"])
def test_an_export_that_would_write_elsewhere_is_refused(tmp_path, harm):
    """Its checksums anybody can make (F61)."""
    from penstock.checkpoint.storage import format as fileformat

    with Harness(job_of("idle", partitions=1), tmp_path / "a") as h:
        h.batch({"rows": [{"k": "a", "v": 1}]})
    exported(tmp_path / "a", tmp_path / "export")
    path = tmp_path / "export" / "export.json"
    _, body = fileformat.decode(path.read_bytes(), kind="export", path=str(path))
    (ref,) = body["commit"]["state"]["step"].values()
    state = {
        "step": {"../../step": {"0": ref}},
        "partition": {"step": {"../0": ref}},
        "path": {"step": {"0": {**ref, "path": "../" + ref["path"]}}},
    }
    body["commit"]["state"] = state[harm]
    path.write_bytes(fileformat.encode("export", body))
    with pytest.raises(CheckpointCorrupt, match="is none that Penstock exports"):
        imported(tmp_path / "export", tmp_path / "b")


def test_what_was_decided_on_a_former_checkpoint_of_the_name_is_not_taken_for_the_new_one(tmp_path):
    """Its batch ids would come again."""
    from penstock.quality.held.decision_records import Decision, HeldRecords

    with Harness(job_of("idle", partitions=1), tmp_path / "a") as h:
        h.batch({"rows": [{"k": "a", "v": 1}]})
    exported(tmp_path / "a", tmp_path / "export")
    (tmp_path / "b").mkdir()
    HeldRecords(LocalStore(tmp_path / "b"), "restored").decide(9, Decision.DISCARD, {}, by="tests")
    with pytest.raises(CannotCopy, match="a former checkpoint of restored reached batch 9"):
        imported(tmp_path / "export", tmp_path / "b")


@pytest.mark.remedy("PEN-CKP-025")
def test_an_export_that_was_cut_short_is_done_again(tmp_path):
    """What it had made is beside its place; a folder that is there is somebody's, whatever is in it."""
    with Harness(job_of("idle", partitions=1), tmp_path / "a") as h:
        h.batch({"rows": [{"k": "a", "v": 1}]})
    (tmp_path / "_export.penstock-export-1" / "state" / "step").mkdir(parents=True)
    assert exported(tmp_path / "a", tmp_path / "export").commit.batch == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "export"]
    (tmp_path / "other" / "state").mkdir(parents=True)
    with pytest.raises(CannotCopy, match="the folder is there already"):
        exported(tmp_path / "a", tmp_path / "other")
    assert (tmp_path / "other" / "state").is_dir()
    assert exported(tmp_path / "a", tmp_path / "third").commit.batch == 0
