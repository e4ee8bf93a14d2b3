"""The assets of an Airflow over its REST interface: what is sent, what a refusal means, and no secret told."""

from __future__ import annotations

from typing import Any, Self

import pytest

from penstock.config.notifications import AirflowLogin
from penstock.config.references import Secret
from penstock.errors import ConfigError
from penstock.supervise.events.assets import AirflowAssets

NAME = "SECRET"


# --- Airflow's side -------------------------------------------------------------------------
class Answer:
    """An answer of a server."""

    def __init__(self, status: int, body: Any = None) -> None:
        self.status_code, self.ok, self._body = status, status < 400, body

    def json(self) -> Any:
        """Return its body."""
        return self._body


class Server:
    """What Airflow answers, by method and path; it remembers what it was sent."""

    def __init__(self, **answers: list[Answer]) -> None:
        self.answers = {
            "login": [Answer(201, {"access_token": "t"})] * 9,
            "GET": [Answer(200, {"assets": [{"id": 5, "uri": "penstock://orders/windows"}]})] * 9,
            "POST": [Answer(200, {})] * 9,
            **answers,
        }
        self.sent: list[tuple[str, Any]] = []

    def __call__(self) -> Server:
        """Return the session."""
        return self

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""

    def post(self, url: str, **options: Any) -> Answer:
        """Answer a login."""
        assert url == "http://a:1/auth/token"
        self.sent.append(("login", options["json"]))
        return self.answers["login"].pop(0)

    def request(self, method: str, url: str, **options: Any) -> Answer:
        """Answer a call."""
        assert options["headers"] == {"Authorization": "Bearer t"}
        assert options["timeout"]
        self.sent.append((method, options.get("json") or options.get("params")))
        return self.answers[method].pop(0)


def assets(server: Server, monkeypatch) -> AirflowAssets:
    """Return the assets of that server."""
    monkeypatch.setenv(NAME, "canary")
    monkeypatch.setattr("requests.Session", server)
    return AirflowAssets(AirflowLogin("http://a:1", "me", Secret(env=NAME)))


def test_an_event_is_posted_for_the_asset_of_that_uri(monkeypatch):
    """One login and one search serve all; another asset whose URI only begins alike is not taken."""
    listed = [{"id": 4, "uri": "penstock://orders/windows2"}, {"id": 5, "uri": "penstock://orders/windows"}]
    server = Server(GET=[Answer(200, {"assets": listed})])
    mine = assets(server, monkeypatch)
    assert mine.post("penstock://orders/windows", {"batch": 1})
    assert mine.post("penstock://orders/windows", {"batch": 2})
    assert [what for what, _ in server.sent] == ["login", "GET", "POST", "POST"]
    assert server.sent[-1] == ("POST", {"asset_id": 5, "extra": {"batch": 2}})


def test_an_asset_that_nobody_knows_is_said(monkeypatch):
    """No DAG waits for it."""
    assert not assets(Server(GET=[Answer(200, {"assets": []})]), monkeypatch).post("penstock://orders/windows", {})


def test_a_token_that_has_ended_is_asked_for_anew(monkeypatch):
    """Once; a second refusal is an error."""
    server = Server(POST=[Answer(401), Answer(200, {}), Answer(401), Answer(401)])
    mine = assets(server, monkeypatch)
    assert mine.post("penstock://orders/windows", {})
    with pytest.raises(OSError, match="401"):
        mine.post("penstock://orders/windows", {})
    assert [what for what, _ in server.sent].count("login") == 3


@pytest.mark.parametrize("refusal", [{"login": [Answer(403)]}, {"GET": [Answer(500)]}, {"POST": [Answer(404)]}])
@pytest.mark.fault("F62")
def test_a_refusal_says_no_secret(monkeypatch, refusal):
    """It names what was asked, and the status."""
    with pytest.raises(OSError, match="Airflow answered") as refused:
        assets(Server(**refusal), monkeypatch).post("penstock://orders/windows", {})
    assert "canary" not in str(refused.value)


def test_an_asset_that_has_gone_is_looked_for_again(monkeypatch):
    """Its number may be another after the DAG was deleted and made anew."""
    server = Server(POST=[Answer(404), Answer(200, {})])
    mine = assets(server, monkeypatch)
    with pytest.raises(OSError, match="404"):
        mine.post("penstock://orders/windows", {})
    assert mine.post("penstock://orders/windows", {})
    assert [what for what, _ in server.sent] == ["login", "GET", "POST", "GET", "POST"]


# --- the password ---------------------------------------------------------------------------
@pytest.mark.fault("F62")
def test_a_secret_is_found_where_it_is_said_and_never_shown(tmp_path, monkeypatch):
    """In a variable, or a file; as it is when it is needed."""
    monkeypatch.setenv(NAME, "canary")
    named, file = Secret(env=NAME), tmp_path / "secret"
    assert named.read().get_secret_value() == "canary"
    assert "canary" not in f"{named!r} {named.read()!r} {named.read()}"
    with pytest.raises(ConfigError, match="cannot be read"):
        Secret(file=file).read()
    file.write_text("canary\n")
    assert Secret(file=file).read().get_secret_value() == "canary"
    file.write_bytes(b"\xffcanary")
    with pytest.raises(ConfigError, match="not UTF-8") as refused:
        Secret(file=file).read()
    assert "canary" not in f"{refused.value!r}{refused.value.__cause__!r}"
    file.write_text("\n")
    monkeypatch.delenv(NAME)
    for gone in (named, Secret(file=file)):
        with pytest.raises(ConfigError, match="there is no secret"):
            gone.read()
