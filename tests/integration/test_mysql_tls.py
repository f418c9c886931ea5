"""TLS to a real server: each mode does what its name states, and what fails states which option."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_mysql_cdc_wm import DefaultSource
from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_client import run
from tests.integration.mysql_binlog import new_database
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS
from watermark_source.errors import OptionError, RefusedError, UnreachableError, WatermarkSourceError

pytestmark = pytest.mark.service

PEM = Path(__file__).parents[1] / "certificates"
CA, CLIENT, ENCRYPTED, UNKNOWN = (str(PEM / f"{n}.pem") for n in ("ca", "client", "client-encrypted", "unknown-ca"))


@pytest.fixture(scope="module")
def server() -> Iterator[MySql]:
    """A server with a certificate for 127.0.0.1, and users who need TLS, a certificate, or neither."""
    config = {
        "ssl_cert": str(PEM / "broker.pem"), "ssl_key": str(PEM / "broker.pem"), "ssl_ca": CA,
        "bind_address": "127.0.0.1,127.0.0.2",
    }  # fmt: skip
    with mysql_service(config=config, where=Where.LOCAL) as own:
        run(own.host, own.port, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        for user, demand in (("cdc", "NONE"), ("careful", "SSL"), ("known", "X509")):
            run(
                own.host, own.port, f"CREATE USER '{user}'@'%' IDENTIFIED BY 'pw' REQUIRE {demand}",
                *(f"GRANT {right} TO '{user}'@'%'" for right in RIGHTS),
            )  # fmt: skip
        yield own


def given(server: MySql, **changes: Any) -> dict[str, str]:
    settings = {
        "hostname": server.host, "port": server.port, "username": "cdc", "password": "pw", "tables": "shop.t",
        **changes,
    }  # fmt: skip
    return {name: str(value) for name, value in settings.items()}


def refused(kind: type[WatermarkSourceError], settings: dict[str, str]) -> str:
    with pytest.raises(kind) as error:
        DefaultSource(settings).schema()
    assert "opensesame" not in "".join(traceback.format_exception(error.value))
    return str(error.value)


@pytest.mark.parametrize(
    ("user", "options"),
    [
        ("cdc", {}),
        ("careful", {}),
        ("careful", {"sslMode": "REQUIRED"}),
        ("careful", {"sslMode": "verify_ca", "sslCa": CA}),
        ("careful", {"sslMode": "verify_identity", "sslCa": CA}),
        ("known", {"sslMode": "required", "sslCert": CLIENT, "sslKey": CLIENT}),
        ("known", {"sslMode": "verify_identity", "sslCa": CA, "sslCert": CLIENT}),
        ("known", {"sslMode": "required", "sslCert": ENCRYPTED, "sslKeyPassword": "opensesame"}),
    ],
)
def test_a_mode_that_the_server_can_meet_connects(server: MySql, user: str, options: dict[str, str]) -> None:
    assert DefaultSource(given(server, username=user, **options)).schema().fieldNames()[0] == "id"


def test_all_connections_of_a_query_are_made_that_way(server: MySql) -> None:
    # This user gets in with a certificate alone: driver, SELECT and dumps.
    with new_database(server) as database:
        database.run("CREATE TABLE t (id INT PRIMARY KEY, name TEXT, amount INT)", "INSERT INTO t VALUES (1, 'a', 2)")
        life = Life(
            database, username="known", password="pw", sslMode="verify_identity", sslCa=CA, sslCert=CLIENT,
        )  # fmt: skip
        start = life.reader.initialOffset()
        end = life.reader.latestOffset(start, ALL)
        assert [change[3:] for change in life.changes(start, end)] == [(1, "a", 2)]
        database.run("UPDATE t SET amount = 3")
        assert len(life.changes(end, life.reader.latestOffset(end, ALL))) == 2
        life.reader.stop()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sslMode": "verify_ca", "sslCa": UNKNOWN}, "no connection with TLS.*certificate verify failed.*sslCa"),
        ({"sslMode": "verify_ca"}, "certificate verify failed"),
    ],
)
def test_a_server_that_is_not_trusted_is_not_talked_to(server: MySql, options: dict[str, str], why: str) -> None:
    with pytest.raises(UnreachableError, match=why):
        DefaultSource(given(server, **options)).schema()


def test_a_certificate_that_was_renewed_at_its_path_is_read_again(
    server: MySql, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca, renewed = tmp_path / "ca.pem", tmp_path / "renewed.pem"
    settings = given(server, sslMode="verify_ca", sslCa=ca)
    for content, is_trusted in ((UNKNOWN, False), (CA, True), (UNKNOWN, False)):
        renewed.write_bytes(Path(content).read_bytes())
        renewed.replace(ca)
        if is_trusted:
            DefaultSource(settings).schema()
            ca.write_bytes(b"half of it is there")
            DefaultSource(settings).schema()
            assert "The previous content is used until the files can be read again" in caplog.text
        else:
            assert "certificate verify failed" in refused(UnreachableError, settings)


def test_a_certificate_for_another_name_is_enough_for_the_ca_alone(server: MySql) -> None:
    # The certificate names localhost and 127.0.0.1.
    other = given(server, hostname="127.0.0.2", sslCa=CA)
    message = refused(UnreachableError, {**other, "sslMode": "verify_identity"})
    assert "no connection with TLS" in message
    assert "certificate is not valid for '127.0.0.2'" in message
    DefaultSource({**other, "sslMode": "verify_ca"}).schema()


def test_a_user_who_needs_tls_does_not_get_in_without(server: MySql) -> None:
    # Of a password that it has seen before the server needs no more than a hash, with TLS or without.
    DefaultSource(given(server, username="careful")).schema()
    assert "refuses the login of the user 'careful'" in refused(
        RefusedError, given(server, username="careful", sslMode="disabled")
    )


def test_required_does_without_nothing() -> None:
    with mysql_service(config={"tls_version": "", "loose_ssl": "OFF"}, where=Where.LOCAL) as plain:
        run(plain.host, plain.port, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        message = refused(UnreachableError, given(plain, username="root", password="", sslMode="required"))
        assert "no connection with TLS" in message
        DefaultSource(given(plain, username="root", password="", sslMode="preferred")).schema()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sslMode": "maybe"}, "sslMode.*maybe.*must be disabled, preferred, required, verify_ca or verify_identity"),
        ({"sslCa": CA}, "sslCa.*is not used with sslMode preferred"),
        ({"sslCert": CLIENT}, "sslCert.*needs sslMode required"),
        ({"sslMode": "required", "sslKey": CLIENT}, "sslKey.*needs sslCert"),
        ({"sslMode": "verify_ca", "sslCa": "/nowhere.pem"}, "sslCa.*cannot be read.*PEM files are needed"),
        ({"sslMode": "required", "sslCert": CA}, "sslCert.*cannot be read"),
        ({"sslMode": "required", "sslCert": ENCRYPTED, "sslKeyPassword": "opensesame2"}, "sslCert.*cannot be read"),
    ],
)
def test_options_that_cannot_work_are_refused(server: MySql, options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        DefaultSource(given(server, **options)).schema()
