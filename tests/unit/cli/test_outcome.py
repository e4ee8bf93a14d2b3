"""How commands end: with an exit code, and with an event for whoever watches."""

from __future__ import annotations

import pytest
import typer

from penstock.cli.outcome import outcome
from penstock.errors import EXIT_PERSON, EXIT_SOFTWARE, ConfigError


@pytest.mark.parametrize(
    ("raised", "code", "what", "exit_code"),
    [
        (ConfigError("no such key"), ConfigError.code, "no such key", EXIT_PERSON),
        (KeyError("x"), "PEN-000", "KeyError: 'x'", EXIT_SOFTWARE),
        (OSError("no room"), "PEN-000", "OSError: no room", EXIT_SOFTWARE),
    ],
    ids=["named", "unforeseen", "unforeseen of the system"],
)
def test_an_error_is_told_once_and_becomes_an_exit_code(capsys, raised, code, what, exit_code):
    """Also one that nobody foresaw: a supervisor reads the event, and a person the lines."""
    errors = []
    with pytest.raises(typer.Exit) as ended, outcome(debug=False, tell=errors.append):
        raise raised
    assert ended.value.exit_code == exit_code
    [error] = errors
    assert (error.code, error.what, error.exit_code) == (code, what, exit_code)
    assert capsys.readouterr().err.startswith(f"{code} {what}")
