"""Run `penstock ui`: the pages on loopback, without Airflow."""

from __future__ import annotations

import importlib.util
import socket
from contextlib import closing
from pathlib import Path

import typer

from penstock.cli.outcome import outcome
from penstock.errors import EnvironmentUnfit
from penstock.runtime.process.project import find_project

__all__ = ["listen", "ui_command"]

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")
_NEEDED = ("fastapi", "jinja2", "uvicorn")


def ui_command(*, port: int, project: Path | None, debug: bool) -> None:
    """Serve the pages until Ctrl-C."""
    with outcome(debug=debug):
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            what = f"{', '.join(missing)} not installed, which the pages need: pip install 'penstock[ui]'"
            raise EnvironmentUnfit(what)
        found = find_project(given=project)
        listening = listen(port)
        with closing(listening):
            _serve(found.root, listening)


def listen(port: int) -> socket.socket:
    """Return a socket on loopback alone; with port 0 at one that is free."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(64)  # who reads the address may ask at once
    except OSError as why:
        found.close()
        said = f"{port} cannot be used ({why.strerror}); 0 takes one that is free"
        raise typer.BadParameter(said, param_hint="--port") from None
    return found


def _serve(root: Path, listening: socket.socket) -> None:
    import uvicorn
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from penstock.ui.app import pages

    app = pages(lambda: find_project(given=root))
    # A name that somebody else's DNS points here is not ours: a page of theirs could read what it is answered.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(NAMES), www_redirect=False)
    print(f"Streams of {root.name}: http://{HOST}:{listening.getsockname()[1]}/ (Ctrl-C ends it)", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn has ended in good order, and passes the signal on
        return
