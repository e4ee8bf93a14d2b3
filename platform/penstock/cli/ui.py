"""`penstock ui`: serve the pages on loopback, without Airflow."""

from __future__ import annotations

import importlib.util
import socket
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Debug, ProjectFolder
from penstock.cli.outcome import outcome, project_at
from penstock.errors import EnvironmentUnfit

__all__ = ["commands", "listen"]

commands = typer.Typer(rich_markup_mode=None)
HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")
_NEEDED = ("fastapi", "jinja2", "uvicorn")


@commands.command()
def ui(
    *,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65_535, help="The port; 0 takes a free one.")] = 8_790,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show the project's streams in a browser.

    These are Airflow's pages of Penstock without Airflow: streams, batches, windows, checkpoints and reports.
    They listen on loopback only, need no login and change nothing. Ctrl-C ends the server.

    \b
    Examples:
      penstock ui
      penstock ui --port 0                       on a free port; the address is printed
    """  # noqa: D301 - click knows the character, not the two
    with outcome(debug=debug, json=None):
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            what = f"{', '.join(missing)} not installed, which the pages need: pip install 'penstock[ui]'"
            raise EnvironmentUnfit(what)
        root = project_at(project).root
        with closing(listen(port)) as listening:
            _serve(root, listening)


def listen(port: int) -> socket.socket:
    """Return a socket on loopback alone; with port 0 at one that is free."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(64)  # who reads the address may ask at once
    except OSError as why:
        listening.close()
        what = f"{port} cannot be used ({why.strerror}); 0 takes one that is free"
        raise typer.BadParameter(what, param_hint="--port") from None
    return listening


def _serve(root: Path, listening: socket.socket) -> None:
    import uvicorn
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from penstock.ui.app import pages

    app = pages(lambda: project_at(root))
    # A name that somebody else's DNS points here is not ours: a page of theirs could read what it is answered.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(NAMES), www_redirect=False)
    print(f"Streams of {root.name}: http://{HOST}:{listening.getsockname()[1]}/ (Ctrl-C ends it)", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn has ended in good order, and passes the signal on
        return
