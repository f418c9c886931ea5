"""What a connection costs before a byte is sent."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.client import connection
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings


def test_tls_that_verifies_nothing_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reads(self: ssl.SSLContext, *_: Any) -> None:
        read.append("certificates")

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", reads)
    settings = ClientSettings("localhost", 1, "u", "hidden")
    opened = connection._Connection(**settings.for_pymysql(), defer_connect=True)
    assert opened.ctx.verify_mode is ssl.CERT_NONE
    assert not opened._ssl_required
    assert read == []
