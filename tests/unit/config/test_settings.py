"""Configuration is refused when it is loaded, with the file and the line of the key (F66)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from penstock.config.schema import (
    AirflowSection,
    CheckpointSection,
    JobFile,
    LimitsSection,
    ProjectFile,
    ReportsSection,
    RunSection,
    SparkSection,
    SuperviseSection,
    TaskDefaults,
    over,
)
from penstock.config.settings import load_settings
from penstock.config.sources import argument_models
from penstock.config.toml_reader import read_model
from penstock.config.values import parse_duration, parse_size, parse_trigger
from penstock.errors import ConfigError, UnknownName
from penstock.graph.durations import millis, minutes, seconds
from penstock.graph.policies import BadRecord, OnEnd
from penstock.time.triggers import AsFastAsPossible, FixedInterval

JOB = """[sources.orders]
kind = "file_replay"
path = "orders.parquet"
order_by = "t"
rows_per_batch = 5_000
nulls = ["NA"]

[tables]
totals = "tables/totals"

[run]
trigger = "interval 10 seconds"
"""
PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project, with the working folder in it so that errors name short paths."""
    (tmp_path / "conf" / "jobs").mkdir(parents=True)
    (tmp_path / "conf" / "penstock.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(project, text: str, name: str = "conf/jobs/orders.toml") -> ConfigError:
    """Return the error for a file with this text."""
    (project / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(project, "orders")
    return caught.value


@pytest.mark.fault("F66")
@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        ("rows_per_batch", "rows_per_bach", 5, "unknown key 'rows_per_bach' in [sources.orders]; did you mean 'rows_per_batch'?"),
        ("[tables]", "[tabels]", 8, "unknown key 'tabels'; did you mean 'tables'?"),
        ("trigger", "xyz", 12, "unknown key 'xyz' in [run]; there is 'clock_patience', 'deadline', 'takeover_after', 'trigger'"),
        ("5_000", '"5000"', 5, "rows_per_batch is '5000' in [sources.orders]; it takes a whole number"),
        ("5_000", "0", 5, "rows_per_batch is 0 in [sources.orders]; the least is 1"),
        ("5_000", "true", 5, "rows_per_batch is True in [sources.orders]; it takes a whole number"),
        ('["NA"]', '"NA"', 6, "nulls is 'NA' in [sources.orders]; it takes a list"),
        ('["NA"]', "[1]", 6, "item 1 of nulls is 1 in [sources.orders]; it takes text"),
        ('"file_replay"', '"file_repley"', 2, "kind is 'file_repley' in [sources.orders]; use 'delta_table' or 'file_replay'"),
        ('order_by = "t"', "", 1, "the key 'order_by' is missing in [sources.orders]"),
        ('"interval 10 seconds"', '"hourly"', 12, 'trigger is \'hourly\' in [run]; write "as_fast", or "interval" and a duration, such as "interval 10 seconds"'),
        ("10 seconds", "10 fortnights", 12, 'write a number and a unit, such as "10 seconds"'),
        ("[sources.orders]", "[sources.Orders]", 1, "the key 'Orders' in [sources]: a name is a lower-case letter"),
        ("[tables]", "[sources.orders]", 8, "a key or table stands twice: '[sources.orders]'"),
        ('order_by = "t"', 'order_by = "t"\norder_by = "u"', 5, "a key or table stands twice: 'order_by = \"u\"'"),
        ('"t"', "t", 4, "this is not TOML: Invalid value"),
        ('path = "orders.parquet"', 'path = "orders.parquet', 3, "this is not TOML: Illegal character"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(project, before, after, line, message):
    """Unknown key with the closest that exists, wrong type, missing key, duplicate, and what is no TOML at all."""
    error = refused(project, JOB.replace(before, after, 1))
    assert error.where == f"conf/jobs/orders.toml:{line}"
    assert message in error.what


@pytest.mark.fault("F66")
def test_all_that_is_wrong_is_told_at_once_beginning_with_the_first(project):
    """Nobody should have to start a job once for each typing error."""
    error = refused(project, JOB.replace("nulls", "nils").replace('"tables/totals"', "7"))
    assert error.where == "conf/jobs/orders.toml:6"
    assert "unknown key 'nils'" in error.what
    assert "line 9: totals is 7 in [tables]; it takes text" in error.what


@pytest.mark.fault("F66")
def test_a_file_cut_off_is_named_with_its_last_line(project):
    """The end of the document has a line as well."""
    assert refused(project, 'a = """\nb\nc').where == "conf/jobs/orders.toml:3"


@pytest.mark.fault("F66")
def test_a_project_file_that_is_gone_or_no_text_is_named(project):
    """The project's file must be there; the job's may be absent."""
    (project / "conf" / "penstock.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load_settings(project, "orders")
    assert caught.value.where == "conf/penstock.toml"
    (project / "conf" / "penstock.toml").unlink()
    with pytest.raises(ConfigError, match="no such file") as caught:
        load_settings(project, "orders")
    assert caught.value.where == "conf/penstock.toml"


@pytest.mark.fault("F66")
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[spark]\nmaster = "yarn"', 2, "executors of yarn run on other machines and must see the checkpoint"),
        ('[checkpoint]\nshared = false\n[spark]\nmaster = "spark://h:1"', 4, "say `shared = true` in [checkpoint]"),
        ('[checkpoint]\nshared = true\n[spark]\nmaster = "locale"', 4, "write 'local[*]', 'spark://HOST:PORT'"),
        ('[checkpoint]\nshared = "yes"', 2, "it takes true or false"),
        ("[spark.conf]\nspark.submit.deployMode = 'cluster'", 2, "drivers run where their supervisor does"),
        ('[spark.conf]\n"spark.sql.adaptive.enabled" = "true"', 2, "state lives by partition number"),
        ("[spark]\nconf.spark.master = 'x'", 2, "it is the key `master`"),
        ("[spark.conf]\n\nmemory = '1g'", 3, "settings of Spark begin with 'spark.'"),
        ("[spark.conf]\nspark.driver.cores = 2", 2, "spark.driver.cores is 2 in [spark.conf]; it takes text"),
        ('[run]\ntakeover_after = "2 seconds"', 2, "the least is 5 seconds"),
        ("[checkpoint]\nkeep = 0", 2, "the least is 1"),
        ("[sources.orders]\nkind = 'file_replay'", 1, "unknown key 'sources'"),
        (
            "[airflow.default_args]\n\nretires = 2",
            3,
            "unknown key 'retires' in [airflow.default_args]; did you mean 'retries'?",
        ),
        (
            "[airflow.default_args]\nretries = '2'",
            2,
            "retries is '2' in [airflow.default_args]; it takes a whole number",
        ),
        ("[airflow.default_args]\nretry_delay = 300", 2, "retry_delay is 300 in [airflow.default_args]; it takes text"),
        ("[airflow.default_args]\nexecution_timeout = 'an hour'", 2, 'such as "10 seconds"'),
    ],
)
def test_the_project_file_is_checked_in_the_same_way(project, text, line, message):
    """What would break the engine is refused where it is written, and sources are the jobs' own."""
    error = refused(project, text, "conf/penstock.toml")
    assert error.where == f"conf/penstock.toml:{line}"
    assert message in error.what


def test_the_job_file_goes_before_the_project_file_and_both_before_what_is_built_in(project):
    """Each key is looked for on its own; settings of Spark are joined."""
    (project / "conf" / "penstock.toml").write_text(
        '[checkpoint]\nroot = "elsewhere"\nkeep = 5\n[run]\ndeadline = "1 minute"\ntrigger = "as_fast"\n'
        "[spark.conf]\nspark.driver.memory = '1g'\nspark.a = 'project'\n"
    )
    (project / "conf" / "jobs" / "orders.toml").write_text(
        JOB + "[checkpoint]\nkeep = 7\n[spark.conf]\n'spark.a' = 'job'\n"
    )
    settings, _ = load_settings(project, "orders")
    assert (settings.root, settings.checkpoint.keep) == (project / "elsewhere", 7)
    assert (settings.run.deadline, settings.run.takeover_after) == (minutes(1), seconds(10))
    assert settings.run.trigger == FixedInterval(10_000_000)
    assert settings.where("run", "trigger") == "conf/jobs/orders.toml:12"
    assert settings.spark.conf == {"spark.driver.memory": "1g", "spark.a": "job"}
    assert (settings.spark.master, settings.checkpoint.shared) == ("local[*]", False)


def test_a_cluster_may_run_what_all_its_machines_see(project):
    """Which file says which of the two does not matter."""
    (project / "conf" / "penstock.toml").write_text('[spark]\nmaster = "k8s://https://h:1"\n')
    (project / "conf" / "jobs" / "orders.toml").write_text(JOB + "[checkpoint]\nshared = true\n")
    settings, _ = load_settings(project, "orders")
    assert (settings.spark.master, settings.checkpoint.shared) == ("k8s://https://h:1", True)


def test_without_any_file_of_its_own_a_job_has_the_defaults(project):
    """A job need not have a file."""
    settings, conf = load_settings(project, "orders")
    assert (settings.root, settings.run.trigger, settings.places) == (project / "checkpoints", None, {})
    assert (dict(conf.sources), dict(conf.tables)) == ({}, {})


def test_a_job_gets_its_sources_and_tables_with_paths_from_the_project_root(project):
    """What stands in the file is what the source is made with."""
    (project / "conf" / "jobs" / "orders.toml").write_text(
        JOB.replace("[tables]", 'schema = "t timestamp"\non_end = "keep_open"\non_bad_record = "fail"\n\n[tables]')
    )
    (project / "orders.parquet").touch()
    _, conf = load_settings(project, "orders")
    source = conf.source("orders")
    assert (source.path, source.order_by, source.rows_per_batch) == (project / "orders.parquet", "t", 5_000)
    assert (source.schema, source.nulls) == ("t timestamp", ("NA",))
    assert (source.on_end, source.on_bad_record) == (OnEnd.KEEP_OPEN, BadRecord.FAIL)
    assert conf.unused() == ["tables.totals"]
    assert conf.table("totals") == project / "tables" / "totals"
    assert conf.unused() == []


@pytest.mark.fault("F66")
@pytest.mark.parametrize(
    ("path", "message"), [("gone.parquet", "no file"), ("orders.json", "neither .parquet nor .csv")]
)
def test_a_source_file_that_is_missing_is_refused_at_the_line_of_its_path(project, path, message):
    """Not when Spark reads it, minutes later."""
    (project / "orders.json").touch()
    (project / "conf" / "jobs" / "orders.toml").write_text(JOB.replace("orders.parquet", path))
    _, conf = load_settings(project, "orders")
    with pytest.raises(ConfigError, match=message) as caught:
        conf.source("orders")
    assert caught.value.where == "conf/jobs/orders.toml:3"


def test_a_name_that_is_not_configured_is_refused_at_the_jobs_line(project):
    """With the closest that is."""
    (project / "conf" / "jobs" / "orders.toml").write_text(JOB)
    _, conf = load_settings(project, "orders")
    with pytest.raises(UnknownName, match="no source 'order'; did you mean 'orders'") as caught:
        conf.source("order")
    assert caught.value.where.startswith(f"{__file__}:")
    with pytest.raises(UnknownName, match="no table 'late'; there is 'totals'"):
        conf.table("late")
    (project / "conf" / "jobs" / "orders.toml").unlink()
    _, conf = load_settings(project, "orders")
    with pytest.raises(UnknownName, match="there is no conf/jobs/orders.toml"):
        conf.table("late")


def test_a_bare_name_is_a_table_of_the_configuration_and_no_folder(project):
    """A form takes names and no paths; a person who means a folder writes it as the error says (issue 17, finding 14)."""
    (project / "conf" / "jobs" / "orders.toml").write_text(JOB)
    (project / "late").mkdir()
    _, conf = load_settings(project, "orders")
    assert conf.path_of("totals") == str(project / "tables" / "totals")
    with pytest.raises(UnknownName, match=r"\[tables\] has no table 'late'; there is 'totals'") as caught:
        conf.path_of("late")
    suggestion = caught.value.what.rpartition(" ")[2]
    assert suggestion == "./late"
    assert conf.path_of(suggestion) == str(project / "late")
    assert conf.path_of("/elsewhere/late") == "/elsewhere/late"


@pytest.mark.parametrize(
    ("text", "micros"),
    [("10 seconds", 10_000_000), ("1 second", 1_000_000), ("0.1 seconds", 100_000), ("2 millis", 2_000),
     ("5 minutes", 300_000_000), ("1 hour", 3_600_000_000), ("1 day", 86_400_000_000), ("7 micros", 7)],
)  # fmt: skip
def test_durations_are_a_number_and_a_unit(text, micros):
    """Whole microseconds by exact arithmetic."""
    assert parse_duration(text).micros == micros


@pytest.mark.parametrize("text", ["10", "ten seconds", "10 s", "-1 seconds", "", "0.5 micros", "1 minutess"])
def test_other_texts_are_no_durations(text):
    """A bare number has no unit."""
    with pytest.raises(ValueError, match=r"unit|whole number"):
        parse_duration(text)


def test_triggers():
    """`as_fast` and `interval` are all there is."""
    assert parse_trigger("as_fast") == AsFastAsPossible()
    assert parse_trigger("interval 500 millis") == FixedInterval(millis(500).micros)
    assert parse_trigger("interval 1 second") == FixedInterval(seconds(1).micros)
    for text in ("interval", "interval 10", "interval 0 seconds", "fast"):
        with pytest.raises(ValueError, match=r"duration|unit|least"):
            parse_trigger(text)


def test_the_page_shows_every_key_and_its_examples_load(tmp_path):
    """docs/configuration.md is the schema in words: each key is a row of a table, each example is accepted."""
    text = PAGE.read_text()
    sections, *kinds = re.split(r"^### \[sources\.NAME\] of kind ", text, flags=re.MULTILINE)
    known = {
        name for section in (*_sections(ProjectFile), AirflowSection, TaskDefaults) for name in section.model_fields
    }
    assert _listed(sections) == known
    assert {kind.split("\n")[0]: _listed(kind) for kind in kinds} == {
        kind: {*model.model_fields} for kind, model in argument_models().items()
    }, "docs/configuration.md has a section '[sources.NAME] of kind KIND' for each source, with a row for each argument"
    blocks = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    for model, block in zip((ProjectFile, *[JobFile] * (len(blocks) - 1)), blocks, strict=True):
        path = tmp_path / "page.toml"
        path.write_text(block)
        read_model(model, path)


def test_the_page_has_the_defaults_of_the_schema():
    """Where a key has a value without being set, the last column begins with it, as a file would say it."""
    written = dict(re.findall(r"^\| `([a-z_]+)` \|.*\| `([^`|]+)`[^|]*\|$", PAGE.read_text(), flags=re.MULTILINE))
    for section in (CheckpointSection, SparkSection, RunSection, LimitsSection, SuperviseSection, ReportsSection):
        for key, field in section.model_fields.items():
            if field.default not in (None, {}, PydanticUndefined):
                parsed = section.model_validate(tomllib.loads(f"{key} = {written[key]}"))
                assert getattr(parsed, key) == field.default, key


@given(st.data())
def test_what_the_first_file_sets_counts_and_then_what_the_next_one_sets(data):
    """Key by key, also within tables; what nobody sets has the default of the schema."""
    keys = st.fixed_dictionaries(
        {},
        optional={
            "keep": st.integers(1, 9),
            "shared": st.booleans(),
            "cache": st.sampled_from(["a", "b"]),
        },
    )
    confs = st.dictionaries(st.sampled_from(["spark.a", "spark.b"]), st.sampled_from(["1", "2"]))
    files = [
        {"checkpoint": data.draw(keys), "spark": data.draw(st.fixed_dictionaries({}, optional={"conf": confs}))}
        for _ in range(3)
    ]
    models = [JobFile.model_validate(file) for file in files]
    joined = over(models[0], over(models[1], models[2]))
    assert joined == over(over(models[0], models[1]), models[2])
    keys_set = {key: value for file in files[::-1] for key, value in file["checkpoint"].items()}
    assert joined.checkpoint == CheckpointSection(**keys_set)
    assert joined.spark.conf == {k: v for file in files[::-1] for k, v in file["spark"].get("conf", {}).items()}


def _listed(text):
    return set(re.findall(r"^\| `([a-z_]+)`", text, flags=re.MULTILINE))


def _sections(model):
    return [field.annotation for field in model.model_fields.values()]


def test_the_projects_own_files_load():
    """What is committed in conf/ is what the schema takes."""
    root = PAGE.parents[1]
    for path in sorted((root / "conf" / "jobs").glob("*.toml")):
        load_settings(root, path.stem)


@pytest.mark.parametrize("text", ["@hourly", "15 * * * *", "*/10 8-18 * * MON-FRI"])
def test_a_schedule_is_cron_or_one_of_its_names(text: str) -> None:
    """As Airflow reads it."""
    assert AirflowSection.model_validate({"schedule": text}).schedule == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@once a day",
        "every hour",
        "* * * *",
        "99 * * * *",
        "0 24 * * *",
        "0 0 0 * *",
        "0 0 * 13 *",
        "{{ 1 }}",
        "15 * * * *\n",
    ],
)
def test_other_texts_are_no_schedules(text: str) -> None:
    """They would break the DAG file."""
    with pytest.raises(ValidationError, match="five fields of cron"):
        AirflowSection.model_validate({"schedule": text})


@pytest.mark.parametrize(("text", "size"), [("1 KiB", 1_024), ("512 MiB", 512 << 20), ("20GiB", 20 << 30)])
def test_a_size_is_read_in_bytes(text: str, size: int) -> None:
    """`[limits] state`: binary units, whole numbers."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["20", "0 GiB", "1.5 GiB", "20 GB", "-1 GiB", ""])
def test_what_is_no_size_is_refused_with_the_units(text: str) -> None:
    """Nobody's 20 is taken for bytes."""
    with pytest.raises(ValueError, match="KiB, MiB, GiB, TiB"):
        parse_size(text)
