"""A server that no longer answers is an error within a limit, to questions and to logins."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest

from pyspark_mysql_cdc_wm.client import login_settings
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, connected
from services.mysql_local import LocalMySql
from tests.integration.mysql_binlog import root, shorten
from watermark_source.errors import ResponseTimeoutError, UnreachableError

pytestmark = pytest.mark.service


def seconds_until_an_error(asked: Callable[[], object]) -> float:
    since = time.monotonic()
    with pytest.raises((ResponseTimeoutError, UnreachableError), match=r"MySQL at 127\.0\.0\.1:\d+ "):
        asked()
    return time.monotonic() - since


def test_a_frozen_server_is_an_error_after_the_limit_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_settings, "PATIENCE_SECONDS", 3)
    shorten(monkeypatch, answer_seconds=3)
    with closing(LocalMySql()) as server:
        server.start()
        settings = root(server)
        with closing(MySqlConnection(settings)) as connection:
            connection.rows("SELECT 1")
            server.pause()
            # A lost connection is opened again, once.
            assert 3 <= seconds_until_an_error(lambda: connection.rows("SELECT 1")) < 60
            assert 3 <= seconds_until_an_error(lambda: connected(settings)) < 60
            assert 3 <= seconds_until_an_error(lambda: connected(settings.patient)) < 60
            server.resume()
            assert connection.rows("SELECT 1") == ((1,),)
