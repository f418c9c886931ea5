"""What a new user types, with the wheel installed: the lines that ``make play`` prints, and the job of the README."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from services.kafka import Kafka
from services.spark_start import quick_spark
from services.wait_until import wait_until
from tests.integration.sessions import processes_of_session

pytestmark = [pytest.mark.service, pytest.mark.timeout(3_000)]
ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 600.0


def environment(paths: Sequence[Path]) -> dict[str, str]:
    """Return the variables of a user who has set none for Python or Spark, except for more folders to import from."""
    inherited = {k: v for k, v in os.environ.items() if k in ("HOME", "JAVA_HOME", "LANG", "TMPDIR")}
    inherited |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "JDK_JAVA_OPTIONS": quick_spark()}
    return inherited | ({"PYTHONPATH": os.pathsep.join(map(str, paths))} if paths else {})


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, built from this checkout, and the packages of this one."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    call([*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    call([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
    python = folder / "venv" / "bin" / "python"
    (home,) = (folder / "venv").glob("lib/python*/site-packages")
    # Their own .pth files, by which the checkout is found, do not count there.
    (home / "packages.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    call([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)])
    return python


def call(command: list[str], folder: Path = ROOT) -> str:
    """Run a program to its end and return what it printed; it must succeed."""
    done = subprocess.run(
        command, cwd=folder, env=environment(()), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Program:
    """A program of the user, whose environment is not activated; its output goes into files."""

    def __init__(self, command: list[str], folder: Path, name: str, paths: Sequence[Path] = ()) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=err, env=environment(paths), start_new_session=True
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
        """Press Ctrl-C, which its whole group gets; return the exit status once all that it started has ended."""
        os.killpg(self._process.pid, signal.SIGINT)
        status = self.wait()
        wait_until(lambda: not processes_of_session(self._process.pid), 60, "the end of all that was started")
        return status

    def wait(self) -> int:
        """Return the exit status once it has ended."""
        return self._process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        for pid in processes_of_session(self._process.pid):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[list[str], str], Program]]:
    programs: list[Program] = []

    def start(command: list[str], name: str, paths: Sequence[Path] = ()) -> Program:
        programs.append(Program(command, tmp_path, name, paths))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


def test_the_wheel_is_whole_and_describes_itself(installed: Path, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    code = "import importlib.metadata as m, json; print(json.dumps(m.metadata('watermark-source').json))"
    described = json.loads(call([str(installed), "-c", code], tmp_path))
    assert described["classifier"] == project["classifiers"]
    assert described["requires_python"] == project["requires-python"]
    assert described["license_expression"] == project["license"]
    assert described["description"].startswith("# watermark_source")
    (home,) = installed.parents[1].glob("lib/python*/site-packages")
    for package in ("watermark_source", "connectors/pyspark_aligned_kafka", "connectors/pyspark_mysql_cdc_wm"):
        files = {path.relative_to(ROOT / package) for path in (ROOT / package).rglob("*.py")}
        found = {path.relative_to(home / Path(package).name) for path in (home / Path(package).name).rglob("*.py")}
        assert found == files
        assert (home / Path(package).name / "py.typed").exists()
    assert "doctor" in call([str(installed), "-m", "watermark_source", "--help"], tmp_path)


@pytest.fixture
def play(kafka: Kafka, run: Callable[..., Program]) -> Program:
    """The program that writes orders, which has begun to."""
    checkout = [ROOT, ROOT / "connectors"]
    program = run([sys.executable, str(ROOT / "examples/play.py"), "--kafka", kafka.bootstrap], "play", checkout)
    program.wait_for(lambda text: "orders written" in text)
    return program


def topic_of(play: Program) -> str:
    (topic,) = re.findall(r"Its topic (\S+) has", play.printed)
    return str(topic)


def test_the_lines_that_play_prints_run_as_they_stand(
    kafka: Kafka, installed: Path, play: Program, run: Callable[..., Program], tmp_path: Path
) -> None:
    job_line, doctor, profile = re.findall(r"^    (\S+ .+)$", play.printed, re.MULTILINE)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")

    job = run([str(installed), *shlex.split(job_line)[1:]], "job")
    job.wait_for(lambda text: len(windows(text)) >= 2)
    assert job.interrupt() == 0, job.errors
    assert "Ctrl-C: " in job.printed + job.errors
    # Workers of Spark that end with it may print tracebacks of their own.
    assert "first_job.py" not in job.errors
    in_topic, closed = orders_by_minute(kafka.bootstrap, topic_of(play)), windows(job.printed)
    assert closed == {minute: in_topic[minute] for minute in closed}
    assert " HOLDS " in job.printed

    checked, measured = (call([str(installed), *shlex.split(line)[1:]], tmp_path) for line in (doctor, profile))
    assert "found in the newest record of 3 partitions" in checked
    assert re.search(r"maxOutOfOrderness = (3|2\.\d) s +for no late row", measured)


@pytest.mark.long("test_an_error_in_a_query_begins_with_its_sentence")
def test_the_first_job_ends_with_the_sentence_of_its_error(
    kafka: Kafka, installed: Path, run: Callable[..., Program], tmp_path: Path
) -> None:
    job = run([str(installed), str(ROOT / "examples/first_job.py"), kafka.bootstrap, "there-is-none"], "job")
    assert job.wait() == 1
    logged = next(line for line in job.errors.splitlines() if line.startswith("the job failed: "))
    assert "UnknownSplitError: topic there-is-none does not exist" in logged


@pytest.mark.long("test_the_lines_that_play_prints_run_as_they_stand")
def test_the_job_of_the_readme_runs_as_it_stands(
    kafka: Kafka, installed: Path, play: Program, run: Callable[..., Program], tmp_path: Path
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code, *_) = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    replaced = {"localhost:9092": kafka.bootstrap, '"orders"': f'"{topic_of(play)}"', '"checkpoints/': f'"{tmp_path}/'}
    for written, here in replaced.items():
        assert written in code
        code = code.replace(written, here)
    (tmp_path / "job.py").write_text(code, encoding="utf-8")
    of_readme = run([str(installed), str(tmp_path / "job.py")], "readme")
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
