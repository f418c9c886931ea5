from __future__ import annotations

import getpass
import io
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from watermark_source.checks import CheckVerdict, Finding
from watermark_source.command_line import main
from watermark_source.errors import UsageError
from watermark_source.monitor import doctor
from watermark_source.monitor.doctor import flags
from watermark_source.option_table import Option, OptionTable


class Pretended:
    """A doctor whose source has three options, one of them asked for."""

    OPTIONS = OptionTable(
        tuple(
            Option(name=name, parse=str, accepted="", example="", doc="", secret=name != "host")
            for name in ("host", "password", "sslKeyPassword")
        )
    )
    ASKED_FOR = "password"

    def findings(self, given: Mapping[str, str]) -> Iterator[Finding]:
        yield Finding("given", CheckVerdict.OK, str(len(given)))


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in Pretended.OPTIONS.options:
        monkeypatch.delenv(doctor.variable_of(option.name), raising=False)


def test_options_are_given_by_name_and_value() -> None:
    words = ["--host", "db1", '--startingOffsets={"a"=1}', "--chunks", "-1"]
    assert doctor.options_of(words) == {"host": "db1", "startingOffsets": '{"a"=1}', "chunks": "-1"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["db1"], "'db1' is not an option"),
        (["--"], "'--' is not an option"),
        (["--host"], "--host needs a value"),
        (["--host", "--port", "1"], "--host needs a value"),
        (["--host", "a", "--host=b"], "--host was given twice"),
    ],
)
def test_other_words_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        doctor.options_of(words)


def test_a_secret_comes_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATERMARK_SOURCE_PASSWORD", "s3cret")
    monkeypatch.setenv("WATERMARK_SOURCE_SSL_KEY_PASSWORD", "an0ther")
    found = doctor.with_secrets({"host": "db1"}, Pretended().OPTIONS)
    assert found == {"host": "db1", "password": "s3cret", "sslKeyPassword": "an0ther"}


def test_on_a_terminal_one_is_asked_for_and_elsewhere_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getpass", lambda prompt: f"typed at {prompt[:8]}")
    for terminal, expected in ((False, {}), (True, {"password": "typed at password"})):
        monkeypatch.setattr(sys.stdin, "isatty", lambda terminal=terminal: terminal)
        assert doctor.with_secrets({}, Pretended().OPTIONS, asked_for="password") == expected


@pytest.mark.parametrize("name", ["password", "PassWord", "sslKeyPassword"])
def test_a_secret_on_the_command_line_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(UsageError) as error:
        doctor.with_secrets({name: "s3cret"}, Pretended().OPTIONS)
    assert "set the environment variable WATERMARK_SOURCE_" in str(error.value)
    assert "s3cret" not in str(error.value)


def test_each_finding_is_one_line_and_failures_decide() -> None:
    findings = [
        Finding("server", CheckVerdict.OK, "MySQL 8.4.3"),
        Finding("TLS", CheckVerdict.WARNING, "not used"),
        Finding("binlog_format", CheckVerdict.FAILED, "MIXED"),
        Finding("gtid_mode", CheckVerdict.SKIPPED, "needs login, which failed"),
    ]
    out = io.StringIO()
    assert not doctor.report(findings, out)
    assert out.getvalue().splitlines() == [
        "ok       server                   MySQL 8.4.3",
        "warning  TLS                      not used",
        "FAILED   binlog_format            MIXED",
        "skipped  gtid_mode                needs login, which failed",
        "4 checks: 1 ok, 1 with a warning, 1 failed, 1 skipped",
    ]
    assert doctor.report(findings[:2], io.StringIO())


def test_the_connectors_are_found_as_spark_finds_them() -> None:
    assert flags("DOCTOR_FLAG")["mysql"] == "pyspark_mysql_cdc_wm"


def test_a_wrong_option_is_reported_before_anything_is_connected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--mysql", "--hostnam", "db1"]) == 2
    logged = capsys.readouterr()
    assert "the nearest is hostname" in logged.err
    assert not logged.out
    assert main(["doctor", "--mysql", "--hostname", "db1"]) == 2
    assert "username: is needed" in capsys.readouterr().err


def test_the_system_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--hostname", "db1"])
    assert ended.value.code == 2
    assert "--mysql" in capsys.readouterr().err


def test_what_is_not_installed_is_named() -> None:
    program = (
        "import sys; sys.modules['pymysql'] = None\n"
        "from watermark_source.monitor.doctor import doctor_of; doctor_of('pyspark_mysql_cdc_wm')"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert "MissingPackageError" in found.stderr
    assert "needs the package pymysql" in found.stderr
