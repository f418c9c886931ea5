"""What ``load()`` logs of a server that it accepts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_mysql_cdc_wm import source
from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.records.layout import Layout
from watermark_source.checks import Caution, Check


def test_a_query_begins_with_the_cautions_of_its_checks_and_of_what_it_may_lack(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server: Any = SimpleNamespace(
        where="MySQL at db1:3306", selection=None, layout=Layout((), ()), tables={},
        found=SimpleNamespace(left_out=frozenset()), close=lambda: None,
    )  # fmt: skip
    checks: list[Check[Any]] = [Check("log_bin", lambda _: "ON"), Check("gtid_mode", lambda _: Caution("OFF: slower"))]
    monkeypatch.setattr(source, "CheckedServer", lambda _: server)
    monkeypatch.setattr(source, "checks_of", lambda _: checks)
    monkeypatch.setattr(source, "gaps", lambda _: [Check("engine", lambda _: Caution("MyISAM"), at_load=False)])
    source.MySqlSource.of(mysql_options.parse({"hostname": "db1", "username": "cdc", "tables": "shop.t"}))
    assert caplog.messages == ["MySQL at db1:3306: gtid_mode: OFF: slower", "MySQL at db1:3306: engine: MyISAM"]
