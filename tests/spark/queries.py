"""Queries over file logs: start, feed, read what came out, and what Spark stated about it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from services.wait_until import wait_until
from tests.spark.file_log import append

START = 1_699_999_980_000
"""A whole minute, in milliseconds."""

_PLANS = 5
Rows = Mapping[int, Sequence[tuple[float, int]]]
"""Rows of each split: seconds after ``START``, value."""


def at(seconds: float) -> datetime:
    """Return the moment so many seconds after ``START``, as Spark's UTC session gives it back."""
    return datetime.fromtimestamp(START / 1_000 + seconds, tz=UTC).replace(tzinfo=None)


def write(directory: Path, rows: Rows, *, log: str = "log") -> None:
    """Append rows to the splits of a log."""
    for split, values in rows.items():
        append(directory, split, [(START + round(second * 1_000), value) for second, value in values], log=log)


def settle(query: StreamingQuery) -> None:
    """Wait until everything written before has been read, and what follows from it has come out.

    A plan waits a second for what lets the watermark advance. On a busy machine a broker answers later than that, and
    Spark takes a plan without a batch for the end: several in a row have to be without one.
    """
    for _ in range(_PLANS):
        query.processAllAvailable()


@dataclass
class Running:
    """A query into a memory table."""

    query: StreamingQuery
    table: str
    spark: SparkSession

    def settle(self) -> None:
        """Wait until everything written before has been read, and what follows from it has come out."""
        settle(self.query)

    def run_on(self, batches: int = 3, *, seconds: float = 240) -> None:
        """Wait until so many batches have begun and ended: a query on the clock may never have nothing to do.

        Its time moves in each ``watermarkInterval``, and on a busy machine a batch may take longer than that.
        """
        last = self._last_batch
        # The one that runs now may have been planned before.
        wait_until(lambda: self._last_batch > last + batches, seconds, f"{batches} more batches")

    @property
    def _last_batch(self) -> int:
        failure, last = self.query.exception(), self.query.lastProgress
        if failure is not None:
            raise failure
        return -1 if last is None else int(last["batchId"])

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.spark.table(self.table).collect())

    @property
    def progress(self) -> list[dict[str, Any]]:
        return [dict(p) for p in self.query.recentProgress]

    @property
    def dropped(self) -> int:
        """Rows refused as late by any operator."""
        return sum(int(o["numRowsDroppedByWatermark"]) for p in self.query.recentProgress for o in p["stateOperators"])


@dataclass
class Streams:
    """What a test needs to stream from file logs under one folder."""

    spark: SparkSession
    root: Path
    started: list[StreamingQuery] = field(default_factory=list)

    def directory(self, name: str = "data") -> Path:
        found = self.root / name
        found.mkdir(exist_ok=True)
        return found

    def write(self, rows: Rows, *, name: str = "data", log: str = "log") -> None:
        write(self.directory(name), rows, log=log)

    def load(self, *, name: str = "data", **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("file-log").option("directory", str(self.directory(name)))
        for option, value in {"startingOffsets": "earliest", **options}.items():
            reader = reader.option(option, str(value))
        return reader.load()

    def checkpoint(self, name: str) -> Path:
        return self.root / "checkpoints" / name

    def start(self, frame: DataFrame, **trigger: Any) -> Running:
        """Start a query into a memory table."""
        table = f"t{uuid.uuid4().hex}"
        writer = frame.writeStream.outputMode("append").format("memory").queryName(table)
        if trigger:
            writer = writer.trigger(**trigger)
        query = writer.option("checkpointLocation", str(self.checkpoint(table))).start()
        self.started.append(query)
        return Running(query, table, self.spark)

    def run(self, frame: DataFrame, name: str, **trigger: Any) -> StreamingQuery:
        """Run a query into a parquet folder until it ends by itself, by default with all that is there now."""
        query = self.start_file(frame, name, **(trigger or {"availableNow": True}))
        query.awaitTermination(240)
        assert not query.isActive, "the run did not end"
        return query

    def start_file(self, frame: DataFrame, name: str, **trigger: Any) -> StreamingQuery:
        """Start a query into a parquet folder, which holds every batch exactly once."""
        writer = frame.writeStream.outputMode("append").format("parquet")
        if trigger:
            writer = writer.trigger(**trigger)
        query = writer.option("checkpointLocation", str(self.checkpoint(name))).start(str(self.sink(name)))
        self.started.append(query)
        return query

    def offsets(self, name: str, *, source: int = 0) -> list[dict[str, Any]]:
        """Return a source's end offset of every batch a checkpoint knows."""
        return [json.loads(text.splitlines()[2 + source]) for _, text in self._log(name, "offsets")]

    def committed(self, name: str) -> dict[int, int]:
        """Return the batches a checkpoint knows as done, with Spark's watermark for the next, after ``START``."""
        entries = {n: json.loads(text.splitlines()[1]) for n, text in self._log(name, "commits")}
        return {n: entry["nextBatchWatermarkMs"] - START for n, entry in entries.items()}

    def uncommit(self, name: str) -> int:
        """Take back the commit of the last batch, as if the driver had died before it; return its number."""
        last = max(self.committed(name))
        folder = self.checkpoint(name) / "commits"
        (folder / str(last)).unlink()
        (folder / f".{last}.crc").unlink(missing_ok=True)
        return last

    def forget(self, name: str, first: int, *, is_planned: bool = True) -> None:
        """Leave of a query into a file sink what a driver leaves that died in a batch, perhaps with it planned."""
        last, _ = self._log(name, "offsets")[-1]
        for batch in range(first, last + 1):
            kinds = ["commits"] if is_planned and batch == first else ["commits", "offsets"]
            for folder in [*(self.checkpoint(name) / kind for kind in kinds), self.sink(name) / "_spark_metadata"]:
                # A file sink writes every tenth batch's log together with those before, which it keeps for a while.
                for file in (f"{batch}", f"{batch}.compact"):
                    (folder / file).unlink(missing_ok=True)
                    (folder / f".{file}.crc").unlink(missing_ok=True)

    def _log(self, name: str, kind: str) -> list[tuple[int, str]]:
        files = (f for f in (self.checkpoint(name) / kind).iterdir() if f.name.isdigit())
        return sorted((int(f.name), f.read_text()) for f in files)

    def sink(self, name: str) -> Path:
        return self.root / "sinks" / name

    def result(self, name: str) -> DataFrame:
        """Return what a file sink holds by its own log."""
        return self.spark.read.parquet(str(self.sink(name)))

    def stop(self) -> None:
        for query in self.started:
            query.stop()
