"""What a new user types: ``make play``, the lines that it prints, and the job of the README, each a program."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from services.kafka import Kafka
from services.spark_start import quick_spark

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 240.0


class Program:
    """A program of the user, whose environment is not activated; its output goes into files."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        inherited = {k: v for k, v in os.environ.items() if k in ("HOME", "JAVA_HOME", "LANG", "TMPDIR")}
        # The project's own folders are on the path of the test's interpreter alone where it is not installed.
        path = os.pathsep.join([str(ROOT), str(ROOT / "connectors")])
        environment = {**inherited, "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": path}
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=err, env={**environment, "JDK_JAVA_OPTIONS": quick_spark()}
            )

    @property
    def printed(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def wait_for(self, state: Callable[[str], bool]) -> None:
        """Wait until its output is so."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not state(self.printed):
            assert self._process.poll() is None, self.printed + self.errors
            assert time.monotonic() < end, self.printed + self.errors
            time.sleep(0.2)

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[list[str], str], Program]]:
    programs: list[Program] = []

    def start(command: list[str], name: str) -> Program:
        programs.append(Program(command, tmp_path, name))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


def test_the_lines_that_play_prints_and_the_job_of_the_readme_run_as_they_stand(
    kafka: Kafka, run: Callable[[list[str], str], Program], tmp_path: Path
) -> None:
    play = run([sys.executable, "examples/play.py", "--kafka", kafka.bootstrap], "play")
    play.wait_for(lambda text: "orders written" in text)
    job_line, doctor, profile = re.findall(r"^    (\S+ .+)$", play.printed, re.MULTILINE)

    job = run(shlex.split(job_line), "job")
    job.wait_for(lambda text: len(windows(text)) >= 4)
    assert job.interrupt() == 0, job.errors
    assert "Traceback" not in job.errors
    (topic,) = re.findall(r"Its topic (\S+) has", play.printed)
    in_topic, closed = orders_by_minute(kafka.bootstrap, topic), windows(job.printed)
    assert closed == {minute: in_topic[minute] for minute in closed}
    assert "held back by" in job.printed

    for line in (doctor, profile):
        done = subprocess.run(shlex.split(line), cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "maxOutOfOrderness = 3 s" in done.stdout or "maxOutOfOrderness = 2." in done.stdout

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code, *_) = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    replaced = {"localhost:9092": kafka.bootstrap, '"orders"': f'"{topic}"', '"checkpoints/': f'"{tmp_path}/'}
    for written, here in replaced.items():
        assert written in code
        code = code.replace(written, here)
    (tmp_path / "job.py").write_text(code, encoding="utf-8")
    of_readme = run([sys.executable, str(tmp_path / "job.py")], "readme")
    of_readme.wait_for(lambda text: re.search(r"^\|\{20.*\|\s*\d+\.0\s*\|$", text, re.MULTILINE) is not None)


def orders_by_minute(bootstrap: str, topic: str) -> Counter[str]:
    """How many orders of each minute the topic has now."""
    minutes: Counter[str] = Counter()
    with contextlib.closing(KafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
        ends = consumer.end_offsets([TopicPartition(topic, number) for number in range(4)])
        consumer.assign(list(ends))
        consumer.seek_to_beginning()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for records in consumer.poll(timeout_ms=1_000).values():
                for record in records:
                    created = datetime.fromisoformat(json.loads(record.value)["order"]["created_at"])
                    minutes[f"{created.astimezone():%Y-%m-%d %H:%M}"] += 1
    return minutes


def windows(printed: str) -> dict[str, int]:
    """The minutes that the job has closed, in order."""
    found = re.findall(r"^(\d{4}-\d\d-\d\d \d\d:\d\d) +([\d,]+) records$", printed, re.MULTILINE)
    return {minute: int(count.replace(",", "")) for minute, count in found}
