"""Whether the server hears of the view of a chunk while the binlog is read beside it: it ends one that is silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, dumped
from pyspark_mysql_cdc_wm.reading import log_reading, snapshot_rows
from pyspark_mysql_cdc_wm.snapshot import consistent_view
from services.mysql import MySql
from services.mysql_client import run


def heard_of(server: MySql, monkeypatch: pytest.MonkeyPatch) -> list[list[bool]]:
    """Return whether it does at each block, a list for each time that the binlog is read from now on."""
    passes: list[list[bool]] = []

    def reported() -> int:
        return int(run(server.host, server.port, "SHOW GLOBAL STATUS LIKE 'Com_do'")[0][1])

    def dumped_and_counted(*place: Any, **options: Any) -> Iterator[PlacedBlock]:
        heard: list[bool] = []
        passes.append(heard)
        for block in dumped(*place, **options):
            before = reported()
            yield block
            heard.append(reported() > before)

    # Not only now and then.
    monkeypatch.setattr(consistent_view, "_KEEP_ALIVE_SECONDS", 0)
    for reader in (snapshot_rows, log_reading):
        monkeypatch.setattr(reader, "dumped", dumped_and_counted)
    return passes
