"""What demos share: the last sentence, lines of progress, an end with a sentence, and no noise of Java."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples import demo
from examples.demo import Progress, last_sentence
from examples.skewed_topic import PARTITIONS, first_moment

ROOT = Path(__file__).parents[2]


class Query:
    """A query that has ended with an error, or runs."""

    name = "count"
    status: Any = {"message": "Processing new data"}  # noqa: RUF012 (Spark's form)

    def __init__(self, error: str | None = None) -> None:
        self.error = error
        self.isActive = error is None

    def exception(self) -> str | None:
        return self.error


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def printed(console: Console) -> list[str]:
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_last_sentence_has_both_losses_and_the_share() -> None:
    sentence = last_sentence("withWatermark", 5_602, 12_000, "orders", ours_lost=0)
    assert sentence == "withWatermark silently lost 5 602 of 12 000 orders (47 %); this source lost 0."


@pytest.mark.parametrize(("seconds", "speed", "window"), [(40, 30, 60_000), (40, 450, 3_600_000), (600.5, 450, 7)])
def test_no_order_of_a_skewed_topic_is_of_the_future_which_brokers_refuse(
    seconds: float, speed: int, window: int
) -> None:
    now = 1_764_417_612_345
    first = first_moment(now, seconds, speed, window)
    last = max(first + each.time_of(int(seconds * each.per_second), speed) for each in PARTITIONS if each.per_second)
    assert first % window == 0
    assert now - window - 1 <= last <= now


def test_progress_is_printed_when_it_is_due_and_no_more_often(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, own, sleep_truly = 0.0, threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        nonlocal now
        if threading.get_ident() == own:
            now += seconds
        else:
            # A thread that an earlier test has left behind: its time is not this one's.
            sleep_truly(seconds)

    monkeypatch.setattr("examples.demo.time.monotonic", lambda: now)
    monkeypatch.setattr("examples.demo.time.sleep", sleep)
    Progress(console, [], lambda: f"{now:.0f} read").wait_until(lambda: now > 11)
    assert [line.split()[0] for line in printed(console)] == ["5", "10"]


def test_a_demo_that_stands_still_ends_with_where_it_is(console: Console) -> None:
    query: Any = Query()
    with pytest.raises(SystemExit, match="nothing has moved for 0 s: 7 read \\(count: Processing new data\\)"):
        Progress(console, [query], lambda: "7 read", patience=0.0).wait_until(lambda: False)


def test_a_demo_whose_query_fails_ends_with_the_error(console: Console) -> None:
    query: Any = Query("no such topic")
    with pytest.raises(SystemExit, match="count failed: no such topic"):
        Progress(console, [query], lambda: "").wait_until(lambda: False)


def test_a_demo_whose_query_was_stopped_by_ctrl_c_ends(console: Console) -> None:
    query: Any = Query()
    query.isActive = False
    with pytest.raises(KeyboardInterrupt):
        Progress(console, [query], lambda: "").wait_until(lambda: False)


def test_ctrl_c_is_confirmed_and_ends_a_demo_with_its_status() -> None:
    program = """
import atexit, signal
from examples.demo import run_demo
atexit.register(lambda: print("a producer that cannot flush"))
run_demo(lambda console: signal.raise_signal(signal.SIGINT))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "\nCtrl-C: ending\n", "")


@pytest.mark.parametrize(
    ("command", "imported"),
    [
        (("watermark_source", "doctor", "--kafka"), "watermark_source.durations"),
        (("examples", "skewed_topic"), "argparse"),
    ],
)
def test_ctrl_c_while_a_program_is_imported_is_one_line(command: Sequence[str], imported: str) -> None:
    module, *arguments = command
    program = f"""
import runpy, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {imported!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = {[module, *arguments]!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "Ctrl-C: ended")


def test_a_step_of_a_demo_that_takes_long_says_that_it_goes_on() -> None:
    program = """
import time
from examples import demo
demo.PROGRESS_SECONDS, demo._GRACE_SECONDS = 1.0, 0.0
def main(console):
    console.print("starting Spark …")
    time.sleep(2.5)
    console.print("   5 s  all is read")
    time.sleep(1.5)
    return 0
demo.run_demo(main)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    first, second, *_, last = done.stdout.splitlines()
    assert (first, second, last) == ("starting Spark …", "   1 s …", "   5 s  all is read")


def test_what_is_started_meanwhile_writes_its_errors_into_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "log").open("w") as log, demo._standard_error(log.fileno()):
        subprocess.run(["sh", "-c", "echo noise >&2"], check=True)
    subprocess.run(["sh", "-c", "echo heard >&2"], check=True)
    assert (tmp_path / "log").read_text() == "noise\n"
    assert capfd.readouterr().err == "heard\n"
