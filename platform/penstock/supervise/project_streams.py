"""Find the streams of a project: those of its jobs, and those whose code is gone."""

from __future__ import annotations

from penstock.checkpoint.roots import control_store, is_there
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.config.settings import checkpoint_root
from penstock.errors import ConfigError, JobNotFound, PenstockError, RootMissing
from penstock.runtime.process.project import Project
from penstock.supervise.control import StreamControl
from penstock.supervise.records import supervised_jobs
from penstock.supervise.stream import Stream
from penstock.time.clock import SystemClock

__all__ = ["newest_stream", "stream_control", "stream_jobs"]


def stream_jobs(project: Project) -> list[str]:
    """Return the project's jobs, and those whose code is gone and whose streams are not."""
    return sorted({*project.job_names(), *_supervised(checkpoint_root(project.root))})


def stream_control(project: Project, job: str) -> StreamControl:
    """Return the control of a stream; one whose code is gone is looked for in the project's own root.

    Raises JobNotFound where there is neither code nor a stream, and RootMissing where nobody supervises.
    """
    try:
        root = project.settings(job).root
    except JobNotFound:
        root = checkpoint_root(project.root)
        if job not in _supervised(root):
            raise
    return StreamControl(root, job, SystemClock())


def newest_stream(project: Project, job: str, errors: list[PenstockError]) -> Stream:
    """Return a job's stream; where its file or root is in trouble, what the project's own root says of it.

    The trouble becomes the reason of the stream, and is added to `errors`.
    """
    try:
        return stream_control(project, job).newest()
    except PenstockError as why:
        trouble = why
    if not isinstance(trouble, RootMissing):  # which is how a project looks before its first start
        errors.append(trouble)
    stream, root = Stream(), checkpoint_root(project.root)
    if isinstance(trouble, ConfigError) and job in _supervised(root):
        stream = StreamControl(root, job, SystemClock()).newest()
    return stream.having(reason=f"{trouble.what} ({trouble.where})")


def _supervised(root: CheckpointFolder) -> list[str]:
    """Return the jobs that have streams in a control root, which may not be there."""
    return supervised_jobs(control_store(root, make=False)) if is_there(root) else []
