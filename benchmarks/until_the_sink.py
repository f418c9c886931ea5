"""How long rows take until they are in the sink of a query that runs while they are written at a steady rate."""

from __future__ import annotations

import tempfile
import time
from typing import Any, Protocol

import numpy as np
from pyspark.sql import DataFrame

from examples.sinks import WholeBatches


class SteadyWriter(Protocol):
    """Writes rows from its start until it is stopped."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


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
