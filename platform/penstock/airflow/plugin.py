"""Put the pages into Airflow: in its navigation, after its login, with a button at each task that has a stream.

Airflow finds this through the entry point `airflow.plugins` of the installed package.
Every process of Airflow loads it, tasks as well, so what only the API server needs is imported when that asks for it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperatorLink

from penstock.airflow import request_operators, upkeep  # noqa: F401 - their operators have the button too
from penstock.airflow.awaiting import StreamOperator
from penstock.airflow.cli_process import PenstockOperator
from penstock.airflow.projects import project_of_pages
from penstock.graph.names import is_name

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

__all__ = ["PenstockPlugin", "StreamLink"]

MOUNTED = "/penstock"
ROUTE = "penstock"


def _base() -> str:
    """Return the path below which Airflow answers, without a slash at its end."""
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


def _all(kind: type[BaseOperator]) -> list[type[BaseOperator]]:
    """Return the operators of a kind, its own and what derives from it: Airflow compares classes by name."""
    return [kind, *(derived for each in kind.__subclasses__() for derived in _all(each))]


class StreamLink(BaseOperatorLink):
    """A button on a task: the page of its stream, there while the task runs as well as after it."""

    name = "Stream"
    operators: ClassVar[list[type[BaseOperator]]] = [*dict.fromkeys((*_all(StreamOperator), *_all(PenstockOperator)))]

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page of the job that the task was given; that of all streams while it is not known."""
        job = str(getattr(operator, "job", ""))
        if not is_name(job):  # a template, as in restart_from_checkpoint: what came of it is kept
            job = _rendered(ti_key)
        page = f"/jobs/{job}" if is_name(job) else "/"
        return f"{_base()}/plugin/{ROUTE}{_base()}{MOUNTED}{page}"


class PenstockPlugin(AirflowPlugin):
    """The pages, their place in the navigation, and the button."""

    name = "penstock"
    # Not ClassVar, because Airflow declares them without.
    external_views = [  # noqa: RUF012
        {"name": "Streams", "href": f"{_base()}{MOUNTED}/", "url_route": ROUTE, "destination": "nav"}
    ]
    operator_extra_links = [StreamLink()]  # noqa: RUF012

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return the pages, each route behind Airflow's login."""
        from airflow.api_fastapi.core_api.security import get_user
        from fastapi import Depends

        from penstock.ui.app import pages

        app = pages(project_of_pages, mounted=MOUNTED, dependencies=[Depends(get_user)])
        return [{"name": "penstock", "app": app, "url_prefix": MOUNTED}]


def _rendered(key: Any) -> str:
    from airflow.models.renderedtifields import RenderedTaskInstanceFields

    return str((RenderedTaskInstanceFields.get_templated_fields(key) or {}).get("job", ""))
