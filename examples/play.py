"""A broker with a skewed topic that keeps being written, and the lines to try with it. ``make play`` runs this.

The topic ``orders`` has four partitions. Orders are JSON with their time in ``order.created_at``: partition 0 is an
hour ahead, 1 is on time, 2 is ten minutes behind, 3 is silent.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kafka import KafkaProducer
from rich.console import Console

from examples.demo import run_demo, say
from examples.servers import add_addresses, topic_of

TOPIC = "orders"
AHEAD_SECONDS = (3_600, 0, -600)
"""How far the times of a partition are ahead of the clock; one more partition is silent."""
HISTORY_SECONDS = 300
"""Of records that the topic has from its start: the first windows close at once."""
PER_SECOND = 10
DISORDER_SECONDS = 3
REPORT_SECONDS = 30.0


def order(partition: int, number: int, now: float) -> bytes:
    """Return one order of a partition, as it is written at ``now``."""
    happened = now + AHEAD_SECONDS[partition] - number * 7_919 % (1_000 * DISORDER_SECONDS) / 1_000
    created_at = datetime.fromtimestamp(happened, UTC).isoformat(timespec="milliseconds")
    document = {"order": {"id": f"{partition}-{number}", "created_at": created_at}, "amount": number % 100}
    return json.dumps(document).encode()


def python() -> str:
    """Return this interpreter as it is called from this folder."""
    path = Path(sys.executable)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def lines(python: str, bootstrap: str, topic: str, folder: str) -> Sequence[str]:
    """Return the commands to try, in the order of a first hour."""
    source = f"--kafka --kafka.bootstrap.servers {bootstrap} --subscribe {topic} "
    source += "--eventTimeColumn 'value:$.order.created_at'"
    job = f"{bootstrap} {topic} --eventTimeColumn 'value:$.order.created_at' --checkpoint {folder}/first-job"
    return (
        f"{python} examples/first_job.py {job}",
        f"{python} -m watermark_source doctor {source}",
        f"{python} -m watermark_source profile {source}",
    )


def write(bootstrap: str, topic: str) -> None:
    """Write the history, then orders as time passes, until Ctrl-C."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
    began = time.time() - HISTORY_SECONDS
    reported, number = 0.0, 0
    try:
        while True:
            while (at := began + number / PER_SECOND) <= time.time():
                for partition in range(len(AHEAD_SECONDS)):
                    producer.send(topic, order(partition, number, at), partition=partition)
                number += 1
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                print(f"{number * len(AHEAD_SECONDS):,} orders written; Ctrl-C ends this", flush=True)
            time.sleep(0.1)
    finally:
        producer.close()


def main(console: Console) -> int:
    """Play until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_addresses(parser, kafka=True)
    given = parser.parse_args()
    console.print("preparing a broker and its topic …")
    with (
        tempfile.TemporaryDirectory(prefix="play-", ignore_cleanup_errors=True) as folder,
        topic_of(given.kafka, TOPIC, len(AHEAD_SECONDS) + 1) as (bootstrap, topic),
    ):
        say(console, f"A broker answers at {bootstrap}. Its topic {topic} has four partitions of orders in JSON:")
        say(
            console,
            "0 is an hour ahead, 1 is on time, 2 is ten minutes behind, 3 is silent. In another terminal, try:\n",
        )
        for line in lines(python(), bootstrap, topic, folder):
            say(console, f"    {line}\n")
        write(bootstrap, topic)
    return 0


if __name__ == "__main__":
    run_demo(main, by_ctrl_c=0)  # which is its end
