"""A query by hand: a source called as Spark calls it, with logs as Spark keeps them.

Run as ``python reader_loop.py BOOTSTRAP TOPIC FOLDER OPTIONS``, options as JSON; it never ends by itself, and continues
where it was killed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_aligned_kafka import DefaultSource

_SPARK_ASKS_AFTER = 0.01


class Loop:
    """Offsets before a batch is read, what it held after it: a line each."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, options: Mapping[str, str]) -> None:
        starting = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        given = {**starting, **options}
        self.reader = DefaultSource(given).streamReader(DefaultSource(given).schema())
        self.topic = topic
        self._offsets, self._reads, self._groups = folder / "offsets", folder / "reads", folder / "groups"
        self._group: dict[str, Any] | None = None
        self.offsets = lines(self._offsets) or [dict(self.reader.initialOffset())]
        if not self._offsets.exists():
            _append(self._offsets, self.offsets[0])
        self.limit = self.reader.getDefaultReadLimit()

    def note_group(self) -> None:
        """Keep what the status shows of the alignment group, with the time, if that has changed."""
        status = self.reader.reportLatestOffset() or {}
        group = status.get("group")
        if group != self._group:
            self._group = group
            _append(self._groups, {"at": time.time(), "group": group})

    def poll_on(self) -> None:
        """Read the batch again that may not have been read to its end."""
        if len(self.offsets) > 1:
            self._read(len(self.offsets) - 1)

    def step(self) -> bool:
        """Plan, and read the batch if there is one."""
        end = dict(self.reader.latestOffset(self.offsets[-1], self.limit))
        if end == self.offsets[-1]:
            time.sleep(_SPARK_ASKS_AFTER)
            return False
        _append(self._offsets, end)
        self.offsets.append(end)
        self._read(len(self.offsets) - 1)
        return True

    def held(self, number: int) -> tuple[str, list[tuple[int, int, int]]]:
        """Return the digest of a batch's rows and markers and the rows: partition, offset, milliseconds."""
        sent: list[pa.RecordBatch] = []
        rows: list[tuple[int, int, int]] = []
        for task in self.reader.partitions(dict(self.offsets[number - 1]), dict(self.offsets[number])):
            for batch in self.reader.read(task):
                assert isinstance(batch, pa.RecordBatch)
                sent.append(batch)
                data = batch.filter(batch["marker"].is_null())
                times = (each.timestamp() for each in data["event_time"].to_pylist())
                places = zip(data["partition"].to_pylist(), data["offset"].to_pylist(), times, strict=True)
                rows += [(partition, offset, round(at * 1_000)) for partition, offset, at in places]
        # Which partition's rows come first, and where Arrow's batches are cut, is up to the brokers' answers.
        in_order = pa.Table.from_batches(sent).sort_by([("partition", "ascending"), ("offset", "ascending")])
        digest = hashlib.sha256(b"".join(each.serialize() for each in in_order.combine_chunks().to_batches()))
        return digest.hexdigest(), sorted(rows)

    def _read(self, number: int) -> None:
        digest, rows = self.held(number)
        _append(self._reads, {"batch": number, "digest": digest, "rows": rows})


def lines(file: Path) -> list[Any]:
    """Return what a file holds, except for a last line that was cut off."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _append(file: Path, entry: Mapping[str, Any]) -> None:
    with file.open("a") as opened:
        opened.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    loop = Loop(sys.argv[1], sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))
    loop.poll_on()
    while True:
        loop.step()
        loop.note_group()
