"""Readers over time: what silence costs, batches repeated, a process that is killed again and again."""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaProducer

from services.kafka import Kafka
from services.local_server import ChildProcess
from tests.integration import reader_loop
from tests.integration.reader_loop import Loop, lines

pytestmark = [pytest.mark.service, pytest.mark.timeout(3_600)]

_log = logging.getLogger(__name__)
NewTopic = Callable[..., str]
BY_BROKERS = {"message.timestamp.type": "LogAppendTime"}
PARTITIONS = 4
USUAL_MS = 1_000
"""Default of ``watermarkInterval``."""
INGESTION = {"watermarkStrategy": "ingestion", "maxWatermarkLag": "1 second"}
OFTEN = {"watermarkInterval": "500 milliseconds"}
IN_PAYLOAD = {"eventTimeColumn": "value:$.at", "maxOutOfOrderness": "30 seconds"}
START, DISORDER_MS, APART_MS = 1_700_000_000_000, 30_000, 3_600_000


class Writer:
    """Writes now and then to all partitions, or all ``but_the_last``, until it is stopped.

    Each partition's times in the payload are an hour behind those of the one before, in disorder within 30 seconds.
    """

    def __init__(self, kafka: Kafka, topic: str, seed: int, *, but_the_last: bool = True) -> None:
        self.written: Counter[int] = Counter()
        self._kafka, self._topic, self._chance = kafka, topic, random.Random(seed)
        self._partitions = PARTITIONS - but_the_last
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._kafka.bootstrap)
        for partition in range(self._partitions):
            self._send(producer, partition)
        while not self._done.wait(self._chance.uniform(0, 0.6)):
            partition = self._chance.randrange(self._partitions)
            for _ in range(self._chance.randint(1, 20)):
                self._send(producer, partition)
        producer.close()

    def _send(self, producer: KafkaProducer, partition: int) -> None:
        clock = START + 5_000 * self.written[partition] - APART_MS * partition
        value = json.dumps({"id": "é}\\", "at": clock - self._chance.randrange(DISORDER_MS)}).encode()
        producer.send(self._topic, value, partition=partition).get(30)
        self.written[partition] += 1


def test_a_silent_query_costs_little_and_makes_at_most_one_batch_an_interval(
    kafka: Kafka, new_topic: NewTopic, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic, seconds = new_topic(PARTITIONS, config=BY_BROKERS), request.config.getoption("--silent-seconds")
    loop = Loop(kafka.bootstrap, topic, tmp_path, INGESTION)
    while len(loop.offsets) < 3:
        loop.step()
    begun, batches, shares = time.monotonic(), 0, []
    while time.monotonic() < begun + seconds:
        cpu, since = time.process_time(), time.monotonic()
        while time.monotonic() < since + seconds / 4:
            batches += loop.step()
        shares.append((time.process_time() - cpu) / (time.monotonic() - since))
    lasted = time.monotonic() - begun
    loop.reader.stop()
    _log.info("%.0f s of silence: %s of a core, %d batches", lasted, shares, batches)
    assert 0 < batches <= lasted * 1_000 / USUAL_MS + 1
    # What else this process does, as clients of tests before, does not continue all the time. It is 0.02 on a busy
    # machine, and most of a core for a query that looks whenever it can.
    assert min(shares) < 0.1


def test_batches_retried_are_the_same_in_every_byte(
    kafka: Kafka, new_topic: NewTopic, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic, replays = new_topic(PARTITIONS, config=BY_BROKERS), request.config.getoption("--reader-replays")
    loop, writer = Loop(kafka.bootstrap, topic, tmp_path, {**INGESTION, **OFTEN}), Writer(kafka, topic, seed=1)
    while len(loop.offsets) <= replays:
        loop.step()
    writer.stop()
    loop.reader.stop()
    reported = {entry["batch"]: entry for entry in lines(tmp_path / "reads")}
    assert any(entry["rows"] for entry in reported.values())
    # In a process that knows nothing of the first.
    again = Loop(kafka.bootstrap, topic, tmp_path, {**INGESTION, **OFTEN})
    for number in range(1, replays + 1):
        digest, rows = again.held(number)
        assert digest == reported[number]["digest"]
        assert [list(row) for row in rows] == reported[number]["rows"]
    again.reader.stop()


@pytest.mark.parametrize("options", [{**INGESTION, **OFTEN}, IN_PAYLOAD], ids=["ingestion", "payload"])
def test_a_process_that_is_killed_again_and_again_sends_the_watermarks_that_were_planned(
    kafka: Kafka, new_topic: NewTopic, tmp_path: Path, request: pytest.FixtureRequest, options: dict[str, str]
) -> None:
    """Batches repeated are the same, none is behind one before, and each row comes once and on time."""
    topic, kills = new_topic(PARTITIONS, config=BY_BROKERS), request.config.getoption("--reader-kills")
    chance = random.Random(request.config.getoption("--kills-seed"))
    # No one waits for a partition that never had a row where time continues in silence.
    writer = Writer(kafka, topic, seed=2, but_the_last=options is not IN_PAYLOAD)
    command = [sys.executable, reader_loop.__file__, kafka.bootstrap, topic, str(tmp_path), json.dumps(options)]
    is_last = False
    for number in range(kills + 200):
        before = len(lines(tmp_path / "reads"))
        is_last = number >= kills and _some_done_again(tmp_path) and len(set(_watermarks(tmp_path))) > 2
        child = ChildProcess(command, folder=tmp_path, log=tmp_path / "log")
        try:
            # The batch that is repeated, and one of its own.
            _wait(child, partial(_goes_on, tmp_path, before))
            if is_last:
                writer.stop()
                _wait(child, lambda: _rows(tmp_path) >= writer.written.total())
                break
            time.sleep(chance.uniform(0, 0.6))
        finally:
            child.kill()
    # A kill after an offset was written and before it was read has nothing repeated.
    assert is_last, f"{kills + 200} kills, and still no batch done again or only the watermarks {_watermarks(tmp_path)}"
    reads = lines(tmp_path / "reads")
    digests = {entry["batch"]: {e["digest"] for e in reads if e["batch"] == entry["batch"]} for entry in reads}
    assert all(len(found) == 1 for found in digests.values())
    watermarks = _watermarks(tmp_path)
    assert watermarks == sorted(watermarks)
    once = {entry["batch"]: entry["rows"] for entry in reads}
    places = [(partition, offset) for rows in once.values() for partition, offset, _ in rows]
    assert len(places) == len(set(places)) == writer.written.total()
    late = [at for batch, rows in once.items() for _, _, at in rows if at <= watermarks[batch - 1]]
    assert late == []
    _log.info("%d kills: %d batches, %d done again, %d rows", kills, len(once), len(reads) - len(once), len(places))


def _wait(child: ChildProcess, happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not happened():
        assert child.exit_code is None, child.last_lines(40)
        assert time.monotonic() < until, child.last_lines(40)
        time.sleep(0.05)


def _goes_on(folder: Path, before: int) -> bool:
    return len(lines(folder / "reads")) >= before + 2


def _watermarks(folder: Path) -> list[int]:
    return [offset.get("wm", 0) for offset in lines(folder / "offsets")]


def _some_done_again(folder: Path) -> bool:
    reads = lines(folder / "reads")
    return len(reads) > len({entry["batch"] for entry in reads})


def _rows(folder: Path) -> int:
    return len({(p, o) for entry in lines(folder / "reads") for p, o, _ in entry["rows"]})
