"""The streams of a project: also those whose code is gone, and those whose files are in trouble."""

from __future__ import annotations

import pytest
from project_samples import make_project

from penstock.checkpoint.roots import control_store
from penstock.errors import ConfigError, JobNotFound, RootMissing
from penstock.runtime.process.project import Project
from penstock.supervise.commands import Command, Verb
from penstock.supervise.control import newest_stream, stream_control, stream_jobs


@pytest.fixture
def project(tmp_path):
    """A project with one job, and a stream of another whose code is gone."""
    root = make_project(tmp_path / "project", rows=10)
    (root / "jobs" / "gone.py").write_text((root / "jobs" / "orders.py").read_text())
    control_store(root / "checkpoints")
    stream_control(Project(root), "gone").ask(Command(verb=Verb.START, id="first"))
    (root / "jobs" / "gone.py").unlink()
    return Project(root)


def test_a_stream_whose_code_is_gone_is_found_in_the_root_of_the_project(project):
    """A name that has neither code nor a stream is no job."""
    assert stream_jobs(project) == ["gone", "orders"]
    assert stream_control(project, "gone").newest().generation == 1
    with pytest.raises(JobNotFound):
        stream_control(project, "third")


def test_trouble_with_a_file_becomes_the_reason_and_an_error(project):
    """The stream stays what the root of the project says of it."""
    stream_control(project, "orders").ask(Command(verb=Verb.START, id="second"))
    (project.root / "conf" / "jobs" / "orders.toml").write_text("[sources\n")
    errors = []
    stream = newest_stream(Project(project.root), "orders", errors)
    assert (stream.generation, "orders.toml" in stream.reason) == (1, True)
    assert [type(error) for error in errors] == [ConfigError]


def test_a_root_that_was_never_made_is_no_error(tmp_path):
    """That is a project before its first start."""
    project, errors = Project(make_project(tmp_path / "fresh", rows=10)), []
    assert "no control root" in newest_stream(project, "orders", errors).reason
    assert errors == []
    with pytest.raises(RootMissing):
        stream_control(project, "orders")
