"""Run the benchmarks and write one JSON and one table: ``python -m benchmarks [case …]``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.alignment import alignment
from benchmarks.batch import batch
from benchmarks.cold import cold
from benchmarks.figures import Figure, save, table
from benchmarks.latency import idle, latency
from benchmarks.memory import RECORDS as MEMORY_RECORDS
from benchmarks.memory import memory
from benchmarks.planning import planning
from benchmarks.prebuilt import PrebuiltSource
from benchmarks.queries import read_all
from benchmarks.session import spark_session
from benchmarks.throughput import compressed, throughput
from benchmarks.topics import PARTITIONS, even_topic, long_topic, skewed_topic
from services.kafka import kafka_service
from services.spark_jars import spark_kafka_jars
from services.topics import create_topic

RESULTS = Path(__file__).parent / "results"
CASES = ("throughput", "compressed", "batch", "alignment", "latency", "idle", "cold", "memory", "planning")
_CODECS = ("lz4", "zstd")


def main() -> None:
    """Start a broker, fill the topics the chosen cases need, measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"some of {', '.join(CASES)}; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="counted runs of each variant (default 3)")
    given = parser.parse_args()
    unknown = set(given.cases) - set(CASES)
    if unknown:
        parser.error(f"unknown case {sorted(unknown)}; the cases are {', '.join(CASES)}")
    chosen = given.cases or CASES
    figures: list[Figure] = []
    if "planning" in chosen:
        print("measuring planning …", flush=True)
        figures += planning(given.rounds)
    if others := [case for case in chosen if case != "planning"]:
        figures += _on_one_broker(others, given.rounds)
    print(table(figures))
    save(figures, RESULTS / "results.json")
    (RESULTS / "results.txt").write_text(table(figures) + "\n")
    print(f"\nsaved in {RESULTS}")


def _on_one_broker(chosen: Sequence[str], rounds: int) -> Iterator[Figure]:
    with kafka_service() as kafka:
        if {"throughput", "batch", "cold"} & set(chosen):
            print("producing the even topic …", flush=True)
            even_topic(kafka.bootstrap, "even")
        if "alignment" in chosen:
            print("producing the skewed topic …", flush=True)
            skewed_topic(kafka.bootstrap, "skewed")
        if "compressed" in chosen:
            print(f"producing the even topic with {' and '.join(_CODECS)} …", flush=True)
            for codec in _CODECS:
                even_topic(kafka.bootstrap, f"even-{codec}", codec=codec)
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
            spark = spark_session("benchmarks", jars=spark_kafka_jars())
            spark.dataSource.register(PrebuiltSource)
            read = partial(read_all, spark, kafka.bootstrap)
            runs: dict[str, Callable[[], Iterator[Figure]]] = {
                "throughput": partial(throughput, read, "even", rounds),
                "compressed": partial(compressed, read, {codec: f"even-{codec}" for codec in _CODECS}, rounds),
                "batch": partial(batch, spark, kafka.bootstrap, "even", rounds),
                "alignment": partial(alignment, read, "skewed", rounds),
                "latency": partial(latency, spark, kafka.bootstrap, "steady", PARTITIONS, rounds),
                "idle": partial(idle, spark, kafka.bootstrap, "steady"),
            }
            yield from runs[case]()


if __name__ == "__main__":
    main()
