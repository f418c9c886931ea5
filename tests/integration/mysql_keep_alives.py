"""Whether the view of a chunk is kept alive while the binlog is read beside it: the server ends one that is silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, dumped
from pyspark_mysql_cdc_wm.reading import snapshot_rows, stream_to_read
from pyspark_mysql_cdc_wm.snapshot import consistent_view
from services.mysql import MySql
from services.mysql_client import run


def keep_alives(server: MySql, monkeypatch: pytest.MonkeyPatch) -> list[list[bool]]:
    """Return whether it is at each block, a list for each time that the binlog is read from now on."""
    passes: list[list[bool]] = []

    def reported() -> int:
        return int(run(server.host, server.port, "SHOW GLOBAL STATUS LIKE 'Com_do'")[0][1])

    def dumped_and_counted(*place: Any, **options: Any) -> Iterator[PlacedBlock]:
        kept: list[bool] = []
        passes.append(kept)
        for block in dumped(*place, **options):
            before = reported()
            yield block
            kept.append(reported() > before)

    # Not only now and then.
    monkeypatch.setattr(consistent_view, "_KEEP_ALIVE_SECONDS", 0)
    for reader in (snapshot_rows, stream_to_read):
        monkeypatch.setattr(reader, "dumped", dumped_and_counted)
    return passes
