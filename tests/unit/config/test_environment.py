"""Settings from the environment: before both files, checked like them (F66)."""

from __future__ import annotations

import pytest
from project_samples import make_project
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config.notifications import AirflowLogin, EventsSettings, load_events
from penstock.config.references import Secret
from penstock.config.schema import ProjectFile
from penstock.config.settings import checkpoint_root, from_environment, load_settings
from penstock.errors import ConfigError
from penstock.time.triggers import AsFastAsPossible

SAYS_MORE = "\n[limits]\nrows = 7\n\n[checkpoint]\nkeep = 3\n"


def test_a_variable_goes_before_both_files(tmp_path, monkeypatch):
    """Key by key; what it does not say the files say."""
    root = make_project(tmp_path / "p", more=SAYS_MORE)
    assert load_settings(root, "orders")[0].limits.rows == 7
    monkeypatch.setenv("PENSTOCK_LIMITS_ROWS", "1_000")
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_ROOT", "elsewhere")
    monkeypatch.setenv("PENSTOCK_RUN_TRIGGER", "as_fast")
    settings, _ = load_settings(root, "orders")
    assert (settings.limits.rows, settings.checkpoint.keep, settings.root) == (1_000, 3, root / "elsewhere")
    assert (settings.run.trigger, settings.where("run", "trigger")) == (
        AsFastAsPossible(),
        "the environment variable PENSTOCK_RUN_TRIGGER",
    )
    assert checkpoint_root(root) == root / "elsewhere"


@pytest.mark.fault("F66")
@pytest.mark.parametrize(
    ("name", "text", "where", "message"),
    [
        ("PENSTOCK_RUN_TRIGGER", "soon", "variable PENSTOCK_RUN_TRIGGER", "write \"as_fast\""),
        ("PENSTOCK_LIMITS_ROWS", "0", "variable PENSTOCK_LIMITS_ROWS", "the least is 1"),
        ("PENSTOCK_LIMITS_ROWS", "many", "variable PENSTOCK_LIMITS_ROWS", "takes a whole number"),
        ("PENSTOCK_LIMITS_ROWS", "", "variable PENSTOCK_LIMITS_ROWS", "takes a whole number"),
        ("PENSTOCK_CHECKPOINT_SHARED", "yes", "variable PENSTOCK_CHECKPOINT_SHARED", "takes true or false"),
        ("PENSTOCK_CHECKPOINT_ROOT", "", "variable PENSTOCK_CHECKPOINT_ROOT", "root"),
        ("PENSTOCK_LIMITS_ROW", "5", "environment variables", "did you mean 'PENSTOCK_LIMITS_ROWS'"),
        ("PENSTOCK_SPARK_CONF", "{}", "environment variables", "there is no setting PENSTOCK_SPARK_CONF"),
        ("PENSTOCK_REPORTS_SUITES", "{}", "environment variables", "there is no setting PENSTOCK_REPORTS_SUITES"),
    ],
)  # fmt: skip
def test_a_variable_that_is_wrong_is_named(name, text, where, message):
    """Nothing that was set is passed over in silence."""
    with pytest.raises(ConfigError) as refused:
        from_environment(ProjectFile, {name: text, "PATH": "/bin"})
    assert where in refused.value.where
    assert message in refused.value.what


@pytest.mark.fault("F66")
def test_what_each_job_says_for_itself_cannot_be_set_for_all(tmp_path, monkeypatch):
    """It would change nothing without a word; a variable that holds a secret may begin alike."""
    root = make_project(tmp_path / "p")
    monkeypatch.setenv("PENSTOCK_AIRFLOW_PASSWORD", "a secret")
    assert load_settings(root, "orders")[0].airflow.schedule is None
    monkeypatch.setenv("PENSTOCK_AIRFLOW_SCHEDULE", "@daily")
    with pytest.raises(ConfigError, match="there is no setting PENSTOCK_AIRFLOW_SCHEDULE"):
        load_settings(root, "orders")


def test_other_variables_are_nobodys_business():
    """Also those of tools of ours that begin alike."""
    around = {"PENSTOCK_PICTURES": "x", "PENSTOCK": "1", "SPARK_HOME": "y", "penstock_limits_rows": "5"}
    assert from_environment(ProjectFile, around) == ProjectFile()


def test_every_key_with_one_value_can_be_set():
    """As text, as a whole number, or as true and false; the page says that tables cannot."""
    values = {
        "checkpoint": {"root": "a", "keep": 4, "shared": True},
        "spark": {"master": "local[3]"},
        "run": {"trigger": "interval 5 seconds", "deadline": "1 minutes", "takeover_after": "6 seconds"},
        "limits": {"state": "1 GiB", "rows": 9},
        "supervise": {
            "backoff": "1 seconds", "backoff_max": "9 seconds", "failures_per_hour": 0, "healthy_after": "3 seconds",
            "progress_within": "4 minutes", "start_within": "2 minutes",
        },
        "reports": {"pandas_rows": 0, "windows": 12},
    }  # fmt: skip
    around = {f"PENSTOCK_{s}_{k}".upper(): str(v) for s, keys in values.items() for k, v in keys.items()}
    around["PENSTOCK_CHECKPOINT_SHARED"] = "true"
    loaded = from_environment(ProjectFile, around)
    assert loaded == ProjectFile.model_validate(values) != ProjectFile()


# --- where events go -------------------------------------------------------------------------
EVENTS = '\n[events]\nairflow = "http://h:1/"\nuser = "u"\npassword_file = "secret"\n'


def with_events(tmp_path, text):
    """Return a project with that in its file."""
    root = make_project(tmp_path / "p")
    path = root / "conf" / "penstock.toml"
    path.write_text(path.read_text() + text)
    return root


def test_events_go_where_the_project_says(tmp_path, monkeypatch):
    """And nowhere without it; the environment goes before."""
    assert load_events(make_project(tmp_path / "none")) == EventsSettings()
    root = with_events(tmp_path, EVENTS + 'webhook_env = "HOOK"\n')
    airflow, hook = AirflowLogin("http://h:1", "u", Secret(file=root / "secret")), Secret(env="HOOK")
    assert load_events(root) == EventsSettings(airflow=airflow, webhook=hook)
    monkeypatch.setenv("PENSTOCK_EVENTS_AIRFLOW", "https://other")
    assert load_events(root).airflow == AirflowLogin("https://other", "u", Secret(file=root / "secret"))


@pytest.mark.fault("F62", "F66")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EVENTS.replace("password_file", "password"), "did you mean 'password_env'|did you mean 'password_file'"),
        (EVENTS.replace('user = "u"', ""), "takes `user`"),
        (EVENTS.replace('password_file = "secret"', ""), "takes `user`, and `password_env`"),
        (EVENTS + 'password_env = "X"\n', "not both"),
        ('\n[events]\nwebhook_env = "X"\nwebhook_file = "y"\n', "not both"),
        ('\n[events]\nwebhook = "https://h/secret"\n', "unknown key 'webhook'"),
        (EVENTS.replace("http://h:1/", "http://me:secret@h"), "without a name or a password"),
        (EVENTS.replace("http://h:1/", "file:///etc/passwd"), "write http://"),
    ],
)
def test_a_place_for_events_that_is_not_whole_is_refused(tmp_path, text, message):
    """With file and line; a password itself is no key."""
    with pytest.raises(ConfigError, match=message) as refused:
        load_events(with_events(tmp_path, text))
    assert "penstock.toml:" in refused.value.where


@pytest.mark.fault("F66")
def test_events_are_the_projects_and_no_jobs(tmp_path):
    """A job's file has no such table."""
    with pytest.raises(ConfigError, match="unknown key 'events'"):
        load_settings(make_project(tmp_path / "p", more=EVENTS), "orders")


@pytest.mark.fault("F66")
def test_a_password_in_the_environment_is_refused_by_name(tmp_path, monkeypatch):
    """It would not be used, and stand where every process can read it."""
    monkeypatch.setenv("PENSTOCK_EVENTS_PASSWORD", "canary")
    with pytest.raises(ConfigError, match="PENSTOCK_EVENTS_PASSWORD") as refused:
        load_events(make_project(tmp_path / "p"))
    assert "canary" not in str(refused.value)


# --- penstock config check ------------------------------------------------------------------
def check(root):
    """Run the command."""
    ran = CliRunner().invoke(app, ["config", "check", "--project", str(root)])
    return ran.exit_code, ran.stdout, ran.stderr


def test_a_project_that_is_right_is_ok(tmp_path):
    """Job by job."""
    assert check(make_project(tmp_path / "p"))[:2] == (0, "orders: ok\n")


@pytest.mark.parametrize(
    ("path", "before", "after", "message"),
    [
        ("conf/jobs/orders.toml", "order_by", "orderby", "line 4: unknown key 'orderby'"),
        ("conf/jobs/orders.toml", "orders.parquet", "gone.parquet", "there is no file 'gone.parquet'"),
        ("conf/jobs/orders.toml", "totals =", "unused = \"x\"\ntotals =", "[tables.unused] is asked for by nothing"),
        ("jobs/orders.py", 'conf.table("totals")', 'conf.table("total")', "did you mean 'totals'"),
        ("jobs/orders.py", "totals.write(", 'totals.check("sane", on_fail=OnFail.WARN).write(', "needs the suite 'sane'"),
        ("jobs/orders.py", "seconds(5)", "seconds(", "orders.py:"),
    ],
    ids=["an unknown key", "no file", "an unused table", "an unknown table", "no suite", "no Python"],
)  # fmt: skip
def test_what_is_wrong_with_a_job_is_told(tmp_path, path, before, after, message):
    """With its place, and the command ends with 78."""
    root = make_project(tmp_path / "p")
    file = root / path
    assert before in file.read_text()
    written = file.read_text().replace(before, after, 1)
    file.write_text(written if path.endswith(".toml") else f"from penstock.quality import OnFail\n{written}")
    code, printed, ended = check(root)
    assert code == 78
    assert "orders: not ok" in printed
    assert message in printed
    assert "orders cannot run" in ended


def test_one_job_that_is_wrong_does_not_hide_the_others(tmp_path):
    """Each is built by itself; a file without a job is told as well."""
    root = make_project(tmp_path / "p")
    (root / "jobs" / "other.py").write_text("import nothing_like_this\n")
    (root / "conf" / "jobs" / "lost.toml").write_text("")
    code, printed, _ = check(root)
    assert code == 78
    assert "orders: ok" in printed
    assert "other: not ok" in printed
    assert "there is no jobs/lost.py" in printed


def test_a_place_for_events_that_is_not_whole_is_told_too(tmp_path):
    """The supervisor would not start."""
    code, _, ended = check(with_events(tmp_path, EVENTS.replace('user = "u"', "")))
    assert code == 78
    assert "takes `user`" in ended.replace("\n", " ")


def test_each_suite_that_is_wrong_is_told(tmp_path):
    """Not only the first."""
    root = make_project(tmp_path / "p", more='more = "tables/more"\n')
    file = root / "jobs" / "orders.py"

    def checked(n, table):
        suite = {"name": f"s{n}", "expectations": [{"type": f"expect_nothing_{n}", "kwargs": {}}]}
        return f'totals.check("c{n}", suite={suite!r}, on_fail=OnFail.WARN).write("t{n}", Delta(conf.table("{table}")))'

    before = 'totals.write("totals", Delta(conf.table("totals")))'
    assert before in file.read_text()
    text = file.read_text().replace(before, f"{checked(1, 'totals')}\n    {checked(2, 'more')}")
    file.write_text(f"from penstock.quality import OnFail\n{text}")
    code, printed, _ = check(root)
    assert code == 78
    assert "expect_nothing_1" in printed
    assert "expect_nothing_2" in printed


@pytest.mark.fault("F62")
def test_a_password_in_an_address_is_not_repeated(tmp_path):
    """Its refusal says what is wrong, and not what was written."""
    with pytest.raises(ConfigError) as refused:
        load_events(with_events(tmp_path, EVENTS.replace("http://h:1/", "http://me:canary@h")))
    assert "canary" not in str(refused.value)


def test_what_is_wrong_for_all_jobs_is_told_once(tmp_path):
    """The project's own file."""
    root = make_project(tmp_path / "p")
    (root / "conf" / "penstock.toml").write_text("[checkpont]\n")
    code, printed, ended = check(root)
    assert (code, printed) == (78, "")
    assert "penstock.toml:1" in ended
    assert "did you mean 'checkpoint'" in ended.replace("\n", " ")
