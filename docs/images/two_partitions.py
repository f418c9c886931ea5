"""Two partitions as lines over time, and which rows the maximum and the minimum of their watermarks cut off.

::

    python -m docs.images.two_partitions

runs both queries on a broker of its own, and keeps the numbers in ``two_partitions.json``. ``docs/generate.py`` draws
them, in ``two_partitions.svg``. Orders with event time in their JSON
are in two partitions. One of them falls behind for a while, as with a producer that lost its network, and recovers.
Both queries read the same batches and drop duplicates: one is Spark's own Kafka source with ``withWatermark``, the
other ``aligned-kafka`` with ``follow_watermark``, and both allow the same out-of-orderness. A row that a query did not
write was dropped as late.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console

from examples.demo import quiet_spark
from services.ivy import spark_kafka_jars
from services.kafka import kafka_service
from services.kafka_topics import create_topic
from watermark_source import follow_watermark

NUMBERS = Path(__file__).with_suffix(".json")
PICTURE = Path(__file__).with_suffix(".svg")
TOPIC = "orders"
START_MS = 1_767_261_600_000  # 2026-01-01 10:00
MINUTE_MS = 60_000
IN_A_BATCH = 4
"""Records of each partition."""
OUT_OF_ORDERNESS = "3 minutes"
BATCHES = 12
BEHIND = (0, 0, 6, 12, 18, 22, 22, 18, 12, 6, 0, 0)
"""Minutes that partition 1 is behind partition 0, by batch."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a query did. Times are milliseconds since 1970-01-01 UTC."""

    watermarks: Sequence[int | None]
    """By batch: the watermark behind which it dropped rows."""
    written: Sequence[Sequence[int]]
    """By partition: the offsets of the rows that it wrote."""

    def watermark_of(self, offset: int) -> int | None:
        """Return the watermark behind which the rows of an offset were dropped."""
        return self.watermarks[offset // IN_A_BATCH]


@dataclass(frozen=True, slots=True)
class Recording:
    """What both queries did with the same rows."""

    spark: str
    """Its version."""
    event_times: Sequence[Sequence[int]]
    """By partition, in the order of offsets; milliseconds since 1970-01-01 UTC."""
    maximum: Run
    minimum: Run

    def dropped(self, run: Run) -> int:
        """Return how many rows a run did not write."""
        return sum(map(len, self.event_times)) - sum(map(len, run.written))


def event_times() -> list[list[int]]:
    """Return the event times of each partition in the order of their offsets, a little out of order."""
    disorder = (0, -90, 30, -60)
    both: list[list[int]] = [[], []]
    for n in range(BATCHES * IN_A_BATCH):
        batch, within = divmod(n, IN_A_BATCH)
        after = BEHIND[min(batch + 1, BATCHES - 1)]
        behind = BEHIND[batch] + (after - BEHIND[batch]) * within / IN_A_BATCH
        for partition, minutes in enumerate((2.0 * n, 2.0 * n - behind)):
            both[partition].append(START_MS + round(minutes * MINUTE_MS) + disorder[within] * 1_000)
    return both


# The run


def record(console: Console) -> Recording:
    """Run both queries on a topic of a broker of its own."""
    times = event_times()
    with kafka_service() as kafka:
        create_topic(kafka.bootstrap, TOPIC, len(times))
        _produce(kafka.bootstrap, times)
        jars = {"spark.jars": ",".join(map(str, spark_kafka_jars())), "spark.sql.session.timeZone": "UTC"}
        with quiet_spark("two-partitions", console, jars) as spark:
            streams = (_by_maximum(spark, kafka.bootstrap), _by_minimum(spark, kafka.bootstrap))
            maximum, minimum = (_run(stream) for stream in streams)
            return Recording(spark.version, times, maximum, minimum)


def _produce(bootstrap: str, times: Sequence[Sequence[int]]) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for partition, of_partition in enumerate(times):
        for ms in of_partition:
            created_at = datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds")
            producer.send(TOPIC, json.dumps({"created_at": created_at}).encode(), partition=partition)
    producer.flush()
    producer.close()


def _orders(spark: SparkSession, name: str, bootstrap: str, **options: str) -> DataFrame:
    reader = spark.readStream.format(name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    reader = reader.option("maxOffsetsPerTrigger", 2 * IN_A_BATCH).option("startingOffsets", "earliest")
    return reader.options(**options).load()


def _by_maximum(spark: SparkSession, bootstrap: str) -> DataFrame:
    document = F.from_json(F.col("value").cast("string"), "created_at TIMESTAMP")
    orders = _orders(spark, "kafka", bootstrap).withColumn("event_time", document["created_at"])
    return orders.withWatermark("event_time", OUT_OF_ORDERNESS)


def _by_minimum(spark: SparkSession, bootstrap: str) -> DataFrame:
    options = {"eventTimeColumn": "value:$.created_at", "maxOutOfOrderness": OUT_OF_ORDERNESS}
    return follow_watermark(_orders(spark, "aligned-kafka", bootstrap, **options), "event_time")


def _run(orders: DataFrame) -> Run:
    written: list[list[int]] = [[], []]

    def keep(batch: DataFrame, number: int) -> None:
        for row in batch.collect():
            assert number == row.offset // IN_A_BATCH, "the batches are those that the picture shows"
            written[row.partition].append(row.offset)

    with tempfile.TemporaryDirectory() as checkpoint:
        unique = orders.dropDuplicates(["partition", "offset", "event_time"]).select("partition", "offset")
        writer = unique.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        applied = {progress.batchId: progress.eventTime.get("watermark") for progress in query.recentProgress}
    # A batch drops rows behind the watermark of the batch before.
    return Run([_millis(applied.get(number - 1)) for number in range(BATCHES)], [sorted(each) for each in written])


def _millis(text: str | None) -> int | None:
    moment = 0 if text is None else round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1_000)
    return moment or None


def read_recording() -> Recording:
    """Return the numbers that were recorded."""
    found = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return Recording(found["spark"], found["event_times"], Run(**found["maximum"]), Run(**found["minimum"]))


# The picture

_WIDTH, _HEIGHT = 960, 430
_PANEL = 430
_LEFT, _TOP, _PLOT_HEIGHT = 46, 92, 262
_STYLE = """\
svg{--back:#fff;--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--a:#0969da;--b:#8250df;--bad:#cf222e;--cut:#cf222e1f;
--good:#1a7f37;--ok:#1a7f371f;font:13px system-ui,sans-serif}
@media (prefers-color-scheme:dark){svg{--back:#0d1117;--ink:#f0f6fc;--soft:#9198a1;--line:#3d444d;--a:#4493f8;
--b:#ab7df8;--bad:#ff7b72;--cut:#ff7b7226;--good:#3fb950;--ok:#3fb95026}}
text{fill:var(--ink)}.t{font-weight:600;font-size:15px}.s{fill:var(--soft)}.bad{fill:var(--bad)}.good{fill:var(--good)}
.p0{fill:var(--a)}.p1{fill:var(--b)}.l{fill:none;stroke-width:1.5}.l0{stroke:var(--a)}.l1{stroke:var(--b)}
.grid{stroke:var(--line)}.x{stroke:var(--bad);stroke-width:2}.max{stroke:var(--bad);fill:none;stroke-width:2}
.min{stroke:var(--good);fill:none;stroke-width:2}.cut{fill:var(--cut)}.ok{fill:var(--ok)}"""


def svg(of: Recording) -> str:
    """Return the picture, which follows the reader's choice of light or dark."""
    return "\n".join(_lines(of)) + "\n"


def _lines(of: Recording) -> Iterator[str]:
    total = sum(map(len, of.event_times))
    dropped = {"maximum": of.dropped(of.maximum), "minimum": of.dropped(of.minimum)}
    label = (
        "Event times of the records of two partitions in the order in which they are read; partition 1 falls behind "
        f"and recovers. withWatermark, by the maximum, drops {dropped['maximum']} of {total} rows; follow_watermark, "
        f"by the minimum, drops {dropped['minimum']}."
    )
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    yield f"<title>{escape(label)}</title>"
    yield f"<style>{_STYLE}</style>"
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="8" style="fill:var(--back)"/>'
    panels = (
        ("withWatermark", "follows the maximum of the partitions", of.maximum, "max", "cut", "bad"),
        ("follow_watermark", "follows the minimum of the partitions", of.minimum, "min", "ok", "good"),
    )
    for number, (name, follows, run, line, area, colour) in enumerate(panels):
        yield f'<g transform="translate({_LEFT + number * (_PANEL + 44)} {_TOP})">'
        yield f'<text class="t" y="-62">{name}</text>'
        yield f'<text class="s" y="-43">{follows}</text>'
        lost = of.dropped(run)
        verdict = f"{lost} of {total} rows dropped, silently" if lost else f"{lost} of {total} rows dropped"
        yield f'<text class="{colour} t" y="-20">{verdict}</text>'
        yield from _panel(of, run, line, area)
        yield "</g>"
    yield f'<g transform="translate({_LEFT} {_HEIGHT - 16})">'
    yield '<circle class="p0" cx="4" cy="-4" r="4"/><text class="s" x="14">partition 0</text>'
    yield '<circle class="p1" cx="104" cy="-4" r="4"/><text class="s" x="114">partition 1, behind for a while</text>'
    yield '<path class="x" d="M320-8l8 8m0-8l-8 8"/><text class="s" x="336">dropped as late</text>'
    yield '<path class="max" d="M456-4h22"/><path class="min" d="M482-4h22"/>'
    yield f'<text class="s" x="512">watermark; each allows {OUT_OF_ORDERNESS} of disorder</text>'
    yield "</g>"
    yield "</svg>"


def _panel(of: Recording, run: Run, line: str, area: str) -> Iterator[str]:
    every = [ms for each in of.event_times for ms in each]
    low, high = min(every) // (30 * MINUTE_MS) * 30 * MINUTE_MS, max(every)

    def x(position: float) -> float:
        return round(_PANEL * position / (BATCHES * IN_A_BATCH), 1)

    def y(ms: int) -> float:
        return round(_PLOT_HEIGHT * (high - ms) / (high - low), 1)

    yield '<text class="s" x="-40" y="-6">event time</text>'
    for ms in range(low, high + 1, 30 * MINUTE_MS):
        clock = f"{datetime.fromtimestamp(ms / 1_000, UTC):%H:%M}"
        yield f'<path class="grid" d="M0 {y(ms)}h{_PANEL}"/><text class="s" x="-40" y="{y(ms) + 4}">{clock}</text>'
    below = "records in the order of reading →"
    yield f'<text class="s" x="{_PANEL}" y="{_PLOT_HEIGHT + 20}" text-anchor="end">{below}</text>'
    steps = [(n, ms) for n, ms in enumerate(run.watermarks) if ms is not None]
    stairs = " ".join(f"{x(n * IN_A_BATCH)},{y(ms)} {x((n + 1) * IN_A_BATCH)},{y(ms)}" for n, ms in steps)
    first = x(steps[0][0] * IN_A_BATCH)
    yield f'<polygon class="{area}" points="{stairs} {_PANEL},{_PLOT_HEIGHT} {first},{_PLOT_HEIGHT}"/>'
    yield f'<polyline class="{line}" points="{stairs}"/>'
    for partition, times in enumerate(of.event_times):
        points = [(x(n + 0.5), y(ms)) for n, ms in enumerate(times)]
        yield f'<polyline class="l l{partition}" points="{" ".join(f"{a},{b}" for a, b in points)}"/>'
        written = frozenset(run.written[partition])
        for n, (a, b) in enumerate(points):
            if n in written:
                yield f'<circle class="p{partition}" cx="{a}" cy="{b}" r="3"/>'
            else:
                yield f'<path class="x" d="M{round(a - 4, 1)} {round(b - 4, 1)}l8 8m0-8l-8 8"/>'


def main() -> None:
    """Record the numbers."""
    NUMBERS.write_text(json.dumps(asdict(record(Console()))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
