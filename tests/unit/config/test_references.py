"""The configuration names secrets, and a start reads them (F62)."""

import pytest
from project_samples import make_project

from penstock.config.references import resolved
from penstock.config.settings import load_settings
from penstock.errors import ConfigError

KEY = "spark.hadoop.fs.s3a.secret.key"
CANARY = "c4n=ary :#!"


def settings_of(folder, line):
    """Return the settings of a job with one setting of Spark."""
    return load_settings(make_project(folder, rows=1, more=f"\n[spark.conf]\n{line}\n"), "orders")[0]


@pytest.mark.fault("F62")
@pytest.mark.parametrize("name", [KEY, "spark.ssl.keyPassword", "spark.hadoop.fs.s3a.access.key", "spark.my.token"])
def test_a_secret_that_is_written_out_is_refused_and_not_repeated(tmp_path, name):
    """The error names the setting, the file, and how to say where the secret is."""
    with pytest.raises(ConfigError, match=r"is a secret: write where it is, '\$\{env:NAME\}'") as refused:
        settings_of(tmp_path, f'{name} = "{CANARY}"')
    assert name in str(refused.value)
    assert "orders.toml" in str(refused.value)
    assert "c4n" not in str(refused.value)


@pytest.mark.parametrize("line", [
    'spark.hadoop.fs.s3a.aws.credentials.provider = "a.Class"', 'spark.kubernetes.oauthTokenFile = "/run/token"',
    f'{KEY} = "${{env:S3_KEY}}"', f'{KEY} = "${{file:secrets/s3}}"',
])  # fmt: skip
def test_what_is_about_a_secret_and_what_names_one_is_taken(tmp_path, line):
    """As the remedy of the refusal says; the settings hold the name, so a copy of the code does as well."""
    assert set(settings_of(tmp_path, line).spark.conf.values()) == {line.split(" = ")[1].strip('"')}


def test_a_secret_is_read_where_it_is(tmp_path, monkeypatch):
    """At a start, and not before: a DAG file reads settings, and has no secrets."""
    (tmp_path / "s3").write_text(f"{CANARY}\n")
    monkeypatch.setenv("S3_KEY", CANARY)
    named = {"a": "${env:S3_KEY}", "b": "${file:s3}", "c": "plain ${env:S3_KEY}"}
    assert resolved(named, tmp_path) == {"a": CANARY, "b": CANARY, "c": "plain ${env:S3_KEY}"}
    with pytest.raises(ConfigError, match="NOT_THERE"):
        resolved({"a": "${env:NOT_THERE}"}, tmp_path)
