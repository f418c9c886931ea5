"""What a connection costs before a byte is sent, and what becomes of a question whose answer does not come."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import Any

import pytest
from pymysql.err import InterfaceError, OperationalError

from pyspark_mysql_cdc_wm.client import connection
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from watermark_source.errors import SourceError, UnreachableError


def test_tls_that_verifies_nothing_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reads(self: ssl.SSLContext, *_: Any) -> None:
        read.append("certificates")

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", reads)
    settings = LoginSettings("localhost", 1, "u", "hidden")
    opened = connection._Connection(**settings.for_pymysql(), defer_connect=True)
    assert opened.ctx.verify_mode is ssl.CERT_NONE
    assert not opened._ssl_required
    assert read == []


def test_a_response_without_end_is_an_error_and_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection._Connection, "_left", 20 * 2**20)
    sent_bytes = []

    def send_without_end(listening: socket.socket) -> None:
        client, _ = listening.accept()
        with client, contextlib.suppress(OSError):
            for number in range(100):
                packet = b"\xff\xff\xff" + bytes([number]) + bytes(2**24 - 1)
                client.sendall(packet)
                sent_bytes.append(len(packet))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = threading.Thread(target=send_without_end, args=(listening,))
        sender.start()
        port = listening.getsockname()[1]
        with pytest.raises(SourceError, match=rf"MySQL at 127.0.0.1:{port} sent a response of more than"):
            MySqlConnection(LoginSettings("127.0.0.1", port, "u", "hidden")).rows("SELECT 1")
        sender.join(30)
    assert sum(sent_bytes) < 100 * 2**20


class Cursor:
    """Gives the next answer, or raises it."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers
        self._rows: Any = ()

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        """Keep nothing."""

    def execute(self, statement: str, _values: object = None) -> None:
        answer = self._answers.pop(0)
        sent.append(statement)
        if isinstance(answer, Exception):
            raise answer
        self._rows = answer

    def fetchall(self) -> Any:
        return self._rows


class Opened:
    """A connection with some answers left."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.closed = False

    def cursor(self) -> Cursor:
        return Cursor(self.answers)

    def close(self) -> None:
        self.closed = True


sent: list[str] = []
LOST, INTERRUPTED = OperationalError(2013, "Lost connection"), OperationalError(1317, "interrupted")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """The connections that are made, one after the other; no time passes between attempts."""
    made: list[Opened] = []
    monkeypatch.setattr(connection, "connected", lambda _: made[sum(each.closed for each in made)])
    monkeypatch.setattr(time, "sleep", lambda _: None)
    sent.clear()
    return made


def asking(patience: float = 60) -> MySqlConnection:
    return MySqlConnection(LoginSettings("db1", 3306, "u", "hidden", patience_seconds=patience))


def test_a_connection_that_is_lost_twice_is_closed_and_the_next_question_opens_another(opened: list[Opened]) -> None:
    opened[:] = [Opened([(1,)], LOST), Opened(LOST), Opened([(3,)])]
    asked = asking(patience=0)
    assert asked.rows("SELECT 1") == ((1,),)
    with pytest.raises(UnreachableError):
        asked.rows("SELECT 2")
    assert [each.closed for each in opened] == [True, True, False]
    assert asked.rows("SELECT 3") == ((3,),)


def test_what_passes_is_waited_for_as_long_as_patience_goes(opened: list[Opened]) -> None:
    opened[:] = [Opened(INTERRUPTED, INTERRUPTED, INTERRUPTED, LOST), Opened(InterfaceError(0, "")), Opened([(1,)])]
    assert asking().rows("SELECT 1") == ((1,),)
    opened[:] = [Opened(OperationalError(1064, "syntax"), [(1,)])]
    with pytest.raises(SourceError, match="error 1064"):
        asking().rows("SELECT")
    opened[:] = [Opened(INTERRUPTED, [(1,)])]
    with pytest.raises(UnreachableError, match="killed or hit a limit"):
        asking(patience=0).rows("SELECT 1")


@pytest.mark.parametrize("answer", [UnicodeDecodeError("utf-8", b"\xe4", 0, 1, "no"), AssertionError(), IndexError()])
def test_an_answer_that_cannot_be_read_ends_the_connection(opened: list[Opened], answer: Exception) -> None:
    opened[:] = [Opened([(1,)], answer), Opened([(2,)])]
    asked = asking(patience=0)
    asked.rows("SELECT 1")
    assert asked.rows("SELECT 2") == ((2,),)
    assert opened[0].closed


def test_statements_that_go_together_begin_again_on_the_new_connection(opened: list[Opened]) -> None:
    opened[:] = [Opened([], LOST), Opened([], [(7,)], [])]
    assert asking().together("START TRANSACTION", "SELECT 7", "ROLLBACK") == ((), ((7,),), ())
    assert sent == ["START TRANSACTION", "SELECT 7", "START TRANSACTION", "SELECT 7", "ROLLBACK"]


def test_the_limit_of_waits_holds_on_the_connection_that_replaces_a_lost_one(opened: list[Opened]) -> None:
    opened[:] = [Opened([], [], LOST), Opened([], [(1,)], [])]
    asked = asking()
    with asked.waiting_for_locks():
        asked.rows("SELECT 1")
    assert sent[-3:] == ["SET SESSION lock_wait_timeout = 5", "SELECT 1", "SET SESSION lock_wait_timeout = DEFAULT"]


@pytest.mark.parametrize("sent", ["5.5.5-10.11.18-MariaDB-log", "10.11.18-MariaDB-log"])
def test_the_version_of_mariadb_10_is_not_the_one_it_shows_to_old_replicas(sent: str) -> None:
    assert connection.version_of(sent) == "10.11.18-MariaDB-log"
