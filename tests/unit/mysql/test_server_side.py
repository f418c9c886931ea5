"""The consistent read of a table that a copy is compared with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_mysql_cdc_wm import server_side
from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition
from pyspark_mysql_cdc_wm.options.tables import TableName
from watermark_source.contract.stream import Relocation

sent: list[str] = []


class View:
    def __init__(self, _: Any) -> None:
        sent.clear()

    def hold(self, tables: Any) -> Any:
        sent.append("hold")
        return tables

    def kept_alive(self, changes: Any) -> Any:
        return changes

    def select(self, statement: str) -> tuple[()]:
        sent.append(statement)
        return ()

    def close(self) -> None:
        sent.append("close")


def test_the_read_stays_open_while_spark_works_between_two_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    end: Any = SimpleNamespace(end=lambda: LogPosition(1, 4), base=lambda: "binlog")
    monkeypatch.setattr(server_side, "ConsistentView", View)
    monkeypatch.setattr(server_side, "LogStatus", lambda _: end)
    monkeypatch.setattr(server_side.ServerSide, "logged", lambda *_: iter(()))
    parts: dict[str, Any] = {
        "source": SimpleNamespace(options=SimpleNamespace(client=None)),
        "table": SimpleNamespace(name=TableName("shop", "t"), key=(), row=None),
    }
    given: dict[str, Any] = {name: parts.get(name) for name in server_side.ServerSide.__dataclass_fields__}
    side = server_side.ServerSide(**given)
    monkeypatch.setattr(server_side.ServerSide, "_since", lambda *_: (0, Relocation("uuid")))
    nothing: Any = None
    with side.read(nothing, planned=nothing) as read:
        assert sent == ["hold", "SET SESSION wait_timeout = 14400"]
        read.rows.select("SELECT 1")
    assert sent[2:] == ["SELECT 1", "close"]
