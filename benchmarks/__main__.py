"""Run the benchmarks and write one JSON and one table: ``python -m benchmarks [case …]``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.alignment import alignment, payload_alignment
from benchmarks.alignment_group import alignment_group
from benchmarks.alignment_join import DAY_TOPICS, alignment_join, join_backlog
from benchmarks.batch import batch, batch_filter
from benchmarks.between_jobs import between_jobs
from benchmarks.cold import cold
from benchmarks.compiling import compiling
from benchmarks.event_time import event_times, payload_topic
from benchmarks.figures import Figure, save, table
from benchmarks.freshness import freshness
from benchmarks.latency import idle, latency, page
from benchmarks.look_ahead import look_ahead, look_ahead_topic
from benchmarks.memory import RECORDS as MEMORY_RECORDS
from benchmarks.memory import memory
from benchmarks.mysql import CASES as MYSQL_CASES
from benchmarks.mysql import on_one_server
from benchmarks.open_pages import open_pages
from benchmarks.ordering import disordered_topic, ordering
from benchmarks.payload import payload, payload_topics
from benchmarks.planning import planning
from benchmarks.prebuilt import PrebuiltSource
from benchmarks.publishing import publishing
from benchmarks.queries import read_all
from benchmarks.session import spark_session
from benchmarks.temporal_join import join_topics, joins
from benchmarks.throughput import compressed, throughput
from benchmarks.topics import PARTITIONS, even_topic, long_topic, skewed_payload_topic, skewed_topic
from benchmarks.window_latency import window_latency
from services.ivy import mysql_driver_jars, spark_kafka_jars
from services.kafka import kafka_service
from services.kafka_topics import create_topic
from watermark_source import recommended_conf

RESULTS = Path(__file__).parent / "results"
KAFKA_CASES = (
    "throughput", "compressed", "batch", "batch-filter", "alignment", "alignment-join", "latency", "freshness",
    "window-latency", "idle", "cold", "page", "open-pages", "memory", "planning", "ordering", "temporal-join",
    "event-time", "payload", "payload-alignment", "look-ahead", "between-jobs", "publishing",
)  # fmt: skip
GROUP_CASE, COMPILING = "alignment-group", "compiling"
CASES = (*KAFKA_CASES, GROUP_CASE, COMPILING, *MYSQL_CASES)
_CODECS = ("lz4", "zstd")
_TOPICS: Mapping[str, tuple[str, Callable[[str, str], None]]] = {
    "alignment": ("skewed", skewed_topic),
    "payload-alignment": ("skewed-payload", skewed_payload_topic),
    "look-ahead": ("look-ahead", look_ahead_topic),
    "ordering": ("disordered", disordered_topic),
    "event-time": ("payload", payload_topic),
    "payload": ("json", payload_topics),
}
"""The topics that one case alone reads."""


def main() -> None:
    """Start the servers that the chosen cases need, fill them, measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"some of {', '.join(CASES)}; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="counted runs of each variant (default 3)")
    parser.add_argument(
        "--warm-up", type=_passes, default=3, metavar="N",
        help="uncounted runs of every reader of MySQL in a JVM, before the counted ones (default 3)",
    )  # fmt: skip
    parser.add_argument("--scale", type=float, default=1.0, help="this much of MySQL's data (default 1)")
    parser.add_argument("--tls", action="store_true", help="MySQL over TLS, for every reader")
    parser.add_argument(
        "--without-debezium", action="store_true", help="leave it out of mysql-binlog: it needs a JDK and 60 MB of jars"
    )
    parser.add_argument(
        "--recommended", action="store_true", help="Spark's settings by recommended_conf(), for local folders"
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's; may be given again"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"folder to save in (default {RESULTS})")
    given = parser.parse_args()
    unknown = set(given.cases) - set(CASES)
    if unknown:
        parser.error(f"unknown case {sorted(unknown)}; the cases are {', '.join(CASES)}")
    chosen = given.cases or CASES
    figures: list[Figure] = []
    if "planning" in chosen:
        print("measuring planning …", flush=True)
        figures += planning(given.rounds)
    if GROUP_CASE in chosen:
        print(f"measuring {GROUP_CASE} …", flush=True)
        figures += alignment_group(given.rounds)
    if COMPILING in chosen:
        print(f"measuring {COMPILING} …", flush=True)
        figures += compiling()
    of_kafka = [case for case in chosen if case in KAFKA_CASES and case != "planning"]
    of_mysql = [case for case in chosen if case in MYSQL_CASES]
    recommended = recommended_conf(local_checkpoints=True, installed_on_executors=True) if given.recommended else {}
    settings = recommended | dict(setting.split("=", 1) for setting in given.conf)
    session = partial(_session, of_kafka=bool(of_kafka), of_mysql=bool(of_mysql), settings=settings)
    if of_kafka:
        figures += _on_one_broker(session, of_kafka, given.rounds)
    if of_mysql:
        figures += on_one_server(
            session,
            of_mysql,
            given.rounds,
            warm_up=given.warm_up,
            scale=given.scale,
            tls=given.tls,
            debezium=not given.without_debezium,
        )
    print(table(figures))
    save(figures, given.results / "results.json")
    (given.results / "results.txt").write_text(table(figures) + "\n")
    print(f"\nsaved in {given.results}")


def _passes(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text}; expected a number of runs, 0 or more, for example 3")
    return number


def _session(*, of_kafka: bool, of_mysql: bool, settings: Mapping[str, str]) -> SparkSession:
    """Return the one session, with the jars for all that is read in it."""
    jars = (*(spark_kafka_jars() if of_kafka else ()), *(mysql_driver_jars() if of_mysql else ()))
    return spark_session("benchmarks", jars=jars, settings=settings)


def _on_one_broker(session: Callable[[], SparkSession], chosen: Sequence[str], rounds: int) -> Iterator[Figure]:
    with kafka_service() as kafka:
        if {"throughput", "batch", "batch-filter", "cold"} & set(chosen):
            print("producing the even topic …", flush=True)
            even_topic(kafka.bootstrap, "even")
        for case in (each for each in chosen if each in _TOPICS):
            name, produce = _TOPICS[case]
            print(f"producing the topic {name} …", flush=True)
            produce(kafka.bootstrap, name)
        if "compressed" in chosen:
            print(f"producing the even topic with {' and '.join(_CODECS)} …", flush=True)
            for codec in _CODECS:
                even_topic(kafka.bootstrap, f"even-{codec}", codec=codec)
        if "temporal-join" in chosen:
            print("producing clicks and users …", flush=True)
            join_topics(kafka.bootstrap)
        if "alignment-join" in chosen:
            print("producing a day of two topics …", flush=True)
            join_backlog(kafka.bootstrap)
        if "memory" in chosen:
            print("producing the long topics …", flush=True)
            for records in MEMORY_RECORDS:
                long_topic(kafka.bootstrap, f"long-{records}", records=records)
        create_topic(kafka.bootstrap, "steady", partitions=PARTITIONS)
        for case in chosen:
            print(f"measuring {case} …", flush=True)
            if case == "cold":
                yield from cold(kafka.bootstrap, "even", rounds)
                continue
            if case == "memory":
                yield from memory(kafka.bootstrap, {records: f"long-{records}" for records in MEMORY_RECORDS})
                continue
            spark = session()
            spark.dataSource.register(PrebuiltSource)
            read = partial(read_all, spark, kafka.bootstrap)
            runs: dict[str, Callable[[], Iterator[Figure]]] = {
                "throughput": partial(throughput, read, "even", rounds),
                "compressed": partial(compressed, read, {codec: f"even-{codec}" for codec in _CODECS}, rounds),
                "batch": partial(batch, spark, kafka.bootstrap, "even", rounds),
                "batch-filter": partial(batch_filter, spark, kafka.bootstrap, "even", rounds),
                "alignment": partial(alignment, read, "skewed", rounds),
                "alignment-join": partial(alignment_join, spark, kafka.bootstrap, DAY_TOPICS, rounds),
                "payload-alignment": partial(payload_alignment, read, "skewed-payload", rounds),
                "look-ahead": partial(look_ahead, read, "look-ahead", rounds),
                "latency": partial(latency, spark, kafka.bootstrap, "steady", PARTITIONS, rounds),
                "freshness": partial(freshness, spark, kafka.bootstrap, "steady", PARTITIONS, rounds),
                "window-latency": partial(window_latency, spark, kafka.bootstrap, "steady", PARTITIONS, rounds),
                "event-time": partial(event_times, spark, kafka.bootstrap, "payload", rounds),
                "payload": partial(payload, spark, kafka.bootstrap, "json", rounds),
                "idle": partial(idle, spark, kafka.bootstrap, "steady"),
                "page": partial(page, spark, kafka.bootstrap, "steady", PARTITIONS, rounds),
                "open-pages": partial(open_pages, spark, kafka.bootstrap, "steady", rounds),
                "ordering": partial(ordering, spark, kafka.bootstrap, "disordered", rounds),
                "between-jobs": partial(between_jobs, spark, kafka.bootstrap, "steady", PARTITIONS),
                "publishing": partial(publishing, spark, kafka.bootstrap, "steady", PARTITIONS, rounds),
                "temporal-join": partial(joins, rounds, spark, kafka.bootstrap),
            }
            yield from runs[case]()


if __name__ == "__main__":
    main()
