"""Find the project that DAG files, tasks and pages are of.

It is `project` in `[penstock]` of airflow.cfg where that is said, as with DAG bundles, whose folder is another for each
version: then the project is that of the supervisor. Otherwise it is the one that the DAG file lies in.
"""

from __future__ import annotations

from pathlib import Path

from airflow.configuration import conf

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import ConfigError
from penstock.runtime.process.project import Project, find_project

__all__ = ["project_of", "project_of_pages", "refuse_root_of_bundle"]


def project_of(file: str) -> Project:
    """Return the project of a DAG file; raises ConfigError where there is none."""
    return _configured() or find_project(Path(file).parent)


def project_of_pages() -> Project:
    """Return the project whose streams the pages show: that of the DAG folder, or of the first bundle that has one.

    Raises ConfigError where there is none.
    """
    project = _configured()
    if project is not None:
        return project
    wrong = None
    for folder in _folders():
        try:
            return find_project(folder)
        except ConfigError as why:
            wrong = wrong or why
    raise ConfigError(
        "neither the folder of DAGs nor a bundle is in a project; say `project` in [penstock] of airflow.cfg",
        where=wrong.where if wrong is not None else None,
    )


def refuse_root_of_bundle(root: CheckpointFolder) -> None:
    """Raise ConfigError for a checkpoint root that moves with each version of a DAG bundle: nobody would read it."""
    from airflow.dag_processing.bundles.base import get_bundle_storage_root_path

    if root.here.is_relative_to(Path(get_bundle_storage_root_path()).resolve()):  # type: ignore[no-untyped-call]
        raise ConfigError(
            "the checkpoint root lies in a DAG bundle, whose folder changes with each version; say an absolute root in "
            "[checkpoint], or the supervisor's project as `project` in [penstock] of airflow.cfg",
            where=str(root),
        )


def _configured() -> Project | None:
    configured = conf.get("penstock", "project", fallback="")
    return find_project(given=Path(configured)) if configured else None


def _folders() -> list[Path]:
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    bundles = [Path(bundle.path) for bundle in DagBundlesManager().get_all_dag_bundles()]  # type: ignore[no-untyped-call]
    return list(dict.fromkeys([Path(conf.get_mandatory_value("core", "dags_folder")), *bundles]))
