"""What a process that Spark started makes of our errors and log lines."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from watermark_source.errors import InternalError, OptionError
from watermark_source.spark_process import (
    LogContext,
    SparkLines,
    each_with_sentence,
    hides_own_frames,
    log_as_spark,
    query_of_task,
    run_of_task,
)

HIDE = "SPARK_HIDE_TRACEBACK"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.setenv(HIDE, "")


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("error", "hidden"), [(OptionError("a", "b", "c"), "1"), (InternalError("x"), ""), (OSError(), "")]
)
def test_only_errors_for_the_user_lose_their_frames(error: Exception, hidden: str) -> None:
    @hides_own_frames
    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        fails()
    assert os.environ[HIDE] == hidden


@pytest.mark.usefixtures("worker")
def test_an_error_between_two_rows_loses_its_frames_too() -> None:
    def rows() -> object:
        yield 1
        raise OptionError("a", "b", "c")

    with pytest.raises(OptionError):
        list(each_with_sentence(rows()))  # type: ignore[arg-type]
    assert os.environ[HIDE] == "1"


def test_a_users_own_program_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_PYTHON_RUNTIME", raising=False)
    monkeypatch.delenv(HIDE, raising=False)

    @hides_own_frames
    def fails() -> None:
        raise OptionError("a", "b", "c")

    with pytest.raises(OptionError):
        fails()
    assert HIDE not in os.environ
    before = list(logging.getLogger("watermark_source").handlers)
    log_as_spark("orders")
    assert logging.getLogger("watermark_source").handlers == before


@pytest.mark.parametrize(
    ("level", "set_to"), [("debug", logging.DEBUG), ("", logging.NOTSET), ("loud", logging.NOTSET)]
)
def test_a_variable_sets_the_level_of_our_lines_and_of_no_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: str, set_to: int
) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "x")
    monkeypatch.setenv("WATERMARK_SOURCE_LOG_LEVEL", level)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    loggers = [logging.getLogger(name) for name in ("watermark_source", "kafka")]
    before = [(logger, list(logger.handlers), logger.level) for logger in loggers]
    try:
        log_as_spark("orders")
        assert [logger.level for logger in loggers] == [set_to, before[1][2]]
        refused = "WATERMARK_SOURCE_LOG_LEVEL is 'loud', and accepted are DEBUG, INFO"
        assert (refused in capsys.readouterr().err) == (level == "loud")
    finally:
        for logger, handlers, former in before:
            logger.handlers = handlers
            logger.setLevel(former)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(
    text: str, *args: object, name: str = "watermark_source.spark", level: int = logging.WARNING
) -> logging.LogRecord:
    made = logging.LogRecord(name, level, "file", 1, text, args, None)
    made.created = 0.0
    return made


def test_a_line_has_time_level_query_and_source() -> None:
    named = LogContext()
    lines = SparkLines(named, Clock())
    line = lines.line(record("gone: %s", "a-0"))
    assert line is not None
    assert line.endswith(" WARN watermark_source: gone: a-0")
    assert len(line.partition(" WARN")[0]) == len("26/11/26 23:44:34")
    named.source, named.query = "orders", "by-minute"
    reported = lines.line(record("gone: %s", "b-0", level=logging.ERROR))
    assert reported is not None
    assert reported.endswith(" ERROR watermark_source: [query by-minute, source orders] gone: b-0")


def test_the_same_line_comes_once_a_minute_with_how_often_it_came() -> None:
    clock = Clock()
    lines = SparkLines(LogContext(), clock)
    assert lines.line(record("gone: %s", "a-0")) is not None
    assert lines.line(record("gone: %s", "a-0")) is None
    # What differs is another loss: it is written.
    assert lines.line(record("gone: %s", "a-1")) is not None
    clock.now = 59.9
    assert lines.line(record("gone: %s", "a-0")) is None
    clock.now = 60.0
    again = lines.line(record("gone: %s", "a-0"))
    assert again is not None
    assert again.endswith("gone: a-0 (2 more like it since the last line)")


def test_the_same_line_of_another_query_is_written() -> None:
    named = LogContext()
    lines = SparkLines(named, Clock())
    for query in ("by-minute", "by-hour"):
        named.query = query
        line = lines.line(record("markers are rows"))
        assert line is not None
        assert f"[query {query}] markers are rows" in line
        assert lines.line(record("markers are rows")) is None


def test_lines_that_say_what_they_are_about_are_folded_by_it() -> None:
    """Each names another record of one member."""
    lines = SparkLines(LogContext(), Clock())
    for number, is_written in enumerate((True, False, False)):
        line = record("offset %d: at is no BIGINT", number)
        line.about = "valueSchema: at"
        assert (lines.line(line) is not None) == is_written
    other = record("offset %d: id is no INT", 4)
    other.about = "valueSchema: id"
    assert lines.line(other) is not None


def test_lines_of_a_client_are_folded_by_what_they_are_about() -> None:
    lines = SparkLines(LogContext(), Clock())
    assert lines.line(record("%s refused", "<connection 1>", name="kafka.conn")) is not None
    assert lines.line(record("%s refused", "<connection 2>", name="kafka.conn")) is None


@contextmanager
def standard_error(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Let standard error be a pipe, as in a process that Spark started; yield the end that Spark reads."""
    taken, written = os.pipe()
    with open(taken, "rb", buffering=0), os.fdopen(written, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        yield taken


WARNS = """
import logging, os, sys
from select import select
from watermark_source.spark_process import LogContext, SparkLines

taken, written = os.pipe()
sys.stderr = os.fdopen(written, "w")
read = []

def clock():
    # Spark takes the line while the process waits for that.
    if select([taken], [], [], 0)[0]:
        read.append(os.read(taken, 1_024))
    return 0.0

record = logging.LogRecord("watermark_source.spark", logging.WARNING, "file", 1, "the run is over", (), None)
SparkLines(LogContext(), clock).emit(record)
os.write(1, b"".join(read))
"""


def test_a_warning_has_been_taken_by_spark_before_the_program_goes_on() -> None:
    """As a query ends, Spark reads no more: a line that is still in the pipe is lost.

    In a process of its own: ``select`` takes no file with a number above 1 023, and other tests may have as many open.
    """
    done = subprocess.run([sys.executable, "-c", WARNS], capture_output=True, check=True, timeout=120)
    assert b"the run is over" in done.stdout


def test_a_reader_of_the_log_that_stands_still_holds_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watermark_source.spark_process._LONGEST_TO_TAKE", 0.01)
    with standard_error(monkeypatch) as taken:
        SparkLines(LogContext()).emit(record("the run is over"))
        assert b"the run is over" in os.read(taken, 1_024)


@pytest.mark.parametrize(("described", "name"), [("by_minute\nid = 1\nrunId = 2", "by_minute"), ("\nid = 1", "7860")])
def test_a_task_names_its_query_or_its_id(monkeypatch: pytest.MonkeyPatch, described: str, name: str) -> None:
    from pyspark import TaskContext

    class Task:
        def getLocalProperty(self, key: str) -> str:  # noqa: N802 (Spark's name)
            return {"spark.job.description": described, "sql.streaming.queryId": "7860"}[key]

    monkeypatch.setattr(TaskContext, "get", Task)
    assert query_of_task() == name


@pytest.mark.parametrize(
    ("query", "group", "run"),
    [
        ("7860", "0d2c9f3e-6a5b-4c3d-8e1f-001122334455", "7860 0d2c9f3e-6a5b-4c3d-8e1f-001122334455"),
        # Jobs that a program has named are of no run that is known, and batches of no stream.
        ("7860", "nightly", None),
        ("7860", None, None),
        (None, "0d2c9f3e-6a5b-4c3d-8e1f-001122334455", None),
    ],
)
def test_a_task_names_the_run_of_its_query(
    monkeypatch: pytest.MonkeyPatch, query: str | None, group: str | None, run: str | None
) -> None:
    from pyspark import TaskContext

    class Task:
        def getLocalProperty(self, key: str) -> str | None:  # noqa: N802 (Spark's name)
            return {"spark.jobGroup.id": group, "sql.streaming.queryId": query}[key]

    monkeypatch.setattr(TaskContext, "get", Task)
    assert run_of_task() == run
