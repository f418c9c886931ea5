"""The strategies beside the example of a connector: rows are summed up in tasks, and silence passes by the clock."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, cast

from pyspark.sql.streaming.datasource import ReadMaxRows

from examples.file_log.pyspark_file_log import DefaultSource
from examples.file_log.watermarks import HOUR, MINUTE, Heartbeats, HourlyFiles
from watermark_source import WatermarkGenerator
from watermark_source.spark.stream_reader import AlignedStreamReader
from watermark_source_testing.driven_stream import Batch, batch_of
from watermark_source_testing.support import behind_pickle

NOON = 1_700_049_600_000
RECEIPTS = 40


class Query:
    """A query on the logs of a folder, whose process may end after any plan."""

    def __init__(self, folder: Path, generator: type[WatermarkGenerator], columns: str) -> None:
        self._given = {
            "folder": str(folder), "columns": columns, "startingOffsets": "earliest", "minPartitions": "3",
            "watermarkStrategy": f"{generator.__module__}:{generator.__name__}",
        }  # fmt: skip
        self.begin()
        self.end: dict[str, Any] = _json(self.reader.initialOffset())

    def begin(self) -> None:
        """Begin a process that has the offset alone."""
        self.schema = DefaultSource(self._given).schema()
        self.reader = behind_pickle(cast(AlignedStreamReader, DefaultSource(self._given).streamReader(self.schema)))

    def step(self, rows: int) -> Batch | None:
        """Plan, and read the batch if there is one."""
        start, self.end = self.end, _json(self.reader.latestOffset(self.end, ReadMaxRows(rows)))
        return None if self.end == start else batch_of(self.reader, start, self.end, self.schema)


def _json(offset: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(offset))
    return made


def append(folder: Path, name: str, *rows: Mapping[str, Any]) -> None:
    with (folder / f"{name}.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def hour_of_receipts(hour: int) -> list[dict[str, int]]:
    """Return receipts of an hour in any order, and the row that ends it."""
    times = [NOON + hour * HOUR + n * HOUR // RECEIPTS for n in range(RECEIPTS)]
    Random(hour).shuffle(times)
    return [*({"time": at} for at in times), {"end_of_hour": NOON + (hour + 1) * HOUR}]


def test_an_hour_is_closed_by_its_last_row_in_any_process_and_in_silence_by_the_clock(tmp_path: Path) -> None:
    append(tmp_path, "shop-0", *(row for hour in range(3) for row in hour_of_receipts(hour)))
    found: list[list[int | None]] = []
    for dies in (False, True):
        query = Query(tmp_path, HourlyFiles, "end_of_hour long")
        sent: list[int | None] = []
        for _ in range(3):
            batch = query.step(RECEIPTS + 1)
            assert batch is not None
            sent.append(query.end.get("wm"))
            late = [
                at for at in batch.rows["event_time"].to_pylist() if at and at.timestamp() * 1_000 <= (sent[-1] or 0)
            ]
            assert late == []
            if dies:
                query.reader.stop()
                query.begin()
        found.append(sent)
        if dies:
            break
        # The last hour, too; then nothing comes.
        until = time.monotonic() + 60
        while query.end["wm"] < time.time() * 1_000 - HOUR - 11 * MINUTE:
            assert time.monotonic() < until, query.end
            query.step(RECEIPTS + 1)
        assert (query.end["wm"] + 1) % HOUR == 0
        query.reader.stop()
    query.reader.stop()
    assert found[0] == [None, NOON + HOUR - 1, NOON + 2 * HOUR - 1]
    assert found[0] == found[1]


def test_heartbeats_of_two_writers_hold_the_log_at_the_slower_one(tmp_path: Path) -> None:
    query = Query(tmp_path, Heartbeats, "writer string, written_to long")
    sent = []
    for second, writers in enumerate(("ab", "a", "b", "")):
        at = NOON + second * 1_000
        beats = [{"time": at, "writer": writer, "written_to": at} for writer in writers]
        append(tmp_path, "orders-0", {"time": at, "writer": "a"}, *beats)
        while query.step(100) is not None:
            pass
        sent.append(query.end["wm"] - NOON)
    query.reader.stop()
    assert sent == [0, 0, 1_000, 1_000]
    assert query.end["own"]["states"] == {"orders": {"0": {"a": NOON + 1_000, "b": NOON + 2_000}}}
