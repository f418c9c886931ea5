"""How long rows take until they are in the sink of a query that runs while they are written at a steady rate."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Figure
from examples.sinks import WholeBatches
from services.spark_start import LOCAL_CHECKPOINTS


class SteadyWriter(Protocol):
    """Writes rows from its start until it is stopped."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


def with_both_checkpoints(
    spark: SparkSession, name: str, measure: Callable[[str], Iterator[Figure]]
) -> Iterator[Figure]:
    """Yield the figures of ``measure``, which is given their name: as Spark is, and with a lighter checkpoint."""
    yield from measure(name)
    for setting, value in LOCAL_CHECKPOINTS.items():
        spark.conf.set(setting, value)
    yield from measure(f"{name}, no processes for a checkpoint")
    for setting in LOCAL_CHECKPOINTS:
        spark.conf.unset(setting)


def until_the_sink(
    frame: DataFrame, writer: SteadyWriter, *, warm_up: float, seconds: float, **trigger: Any
) -> list[float]:
    """Return how many ms after the moment in its column ``at`` each row was in the sink, once the query is warm.

    ``at`` is ms since the epoch, ``warm_up`` and ``seconds`` are s, ``trigger`` is what ``DataStreamWriter`` takes.
    """
    taken: list[np.ndarray] = []
    measure_from = time.time() + warm_up

    def sink(batch: DataFrame, _: int) -> None:
        moments = batch.select("at").toArrow().column("at").to_numpy()
        now = time.time()
        if now >= measure_from:
            taken.append(now * 1_000 - moments)

    with tempfile.TemporaryDirectory(prefix="benchmark-") as checkpoint:
        batches = WholeBatches(sink)
        stream = frame.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint)
        query = (stream.trigger(**trigger) if trigger else stream).start()
        writer.start()
        time.sleep(warm_up + seconds)
        writer.stop()
        batches.close()
        query.stop()
    return list(np.concatenate(taken).tolist()) if taken else []
