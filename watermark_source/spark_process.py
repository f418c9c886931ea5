"""Errors and logs in a Python process that Spark started.

Spark sends an exception to the user's program with every frame of its process; here an error of this project is sent
as its message alone. Python writes log lines without a handler as bare text; here they have the form of Spark's own.
In a user's own program nothing is changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import os
import re
import stat
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from watermark_source.errors import InternalError, WatermarkSourceError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_SET_BY_SPARK = "SPARK_PYTHON_RUNTIME"
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""If this variable is set, Spark's Python workers send an exception's type and text without its frames."""
_OWN, _CONNECTORS = "watermark_source", "pyspark_"
"""Name of the engine's package, and how those of connectors begin."""
_LEVEL = "WATERMARK_SOURCE_LOG_LEVEL"
"""The level of this project's lines; libraries keep theirs, whose lines at DEBUG may hold what a server sent."""
_FOLDED_SECONDS = 60.0
"""Seconds in which equal lines are written once."""
_MOST_LINES = 1_000
"""Limit on the different lines that are remembered."""
_LONGEST_TO_TAKE, _LOOK_AGAIN = 0.5, 0.001
"""Seconds that a line waits for Spark to take it, and between two looks."""


def is_spark_worker() -> bool:
    """Return whether Spark started this process."""
    return _SET_BY_SPARK in os.environ


@contextmanager
def sentence_first() -> Iterator[None]:
    """Send an error of this project without its frames; an ``InternalError`` keeps them.

    A process ends after Spark has sent its exception, so the variable affects no other error.
    """
    try:
        yield
    except InternalError:
        raise
    except WatermarkSourceError:
        if is_spark_worker():
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


def hides_own_frames(call: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a function that Spark calls, so that its errors leave it as ``sentence_first`` describes."""

    @functools.wraps(call)
    def called(*args: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        with sentence_first():
            return call(*args, **named)

    return called


def each_with_sentence(rows: Iterable[_Result]) -> Iterator[_Result]:
    """Yield rows to Spark; errors leave the iterator as ``sentence_first`` describes."""
    with sentence_first():
        yield from rows


class LogContext:
    """The source and the query that every line of this process names."""

    def __init__(self) -> None:
        self.source: str | None = None
        self.query: str | None = None

    def __str__(self) -> str:
        named = {"query": self.query, "source": self.source}
        text = ", ".join(f"{key} {value}" for key, value in named.items() if value)
        return f"[{text}] " if text else ""


_context = LogContext()


def log_as_spark(source: str, query: str | None = None) -> None:
    """Write log lines of this process to standard error, which Spark forwards, in the form of Spark's own.

    It does nothing in a process that Spark did not start. A handler of the root logger, such as Spark's own for
    ``spark.sql.pyspark.worker.logging.enabled``, gets the lines instead.

    Args:
        source: the source's name in the lines.
        query: the query's name or id; ``None`` while it is unknown.
    """
    if not is_spark_worker():
        return
    _context.source = source
    note_query(query)
    for name in _loggers():
        logger = logging.getLogger(name)
        if not any(isinstance(handler, SparkLines) for handler in logger.handlers):
            logger.addHandler(SparkLines(_context))
            if _is_ours(name):
                _set_level(logger)


def _loggers() -> Iterator[str]:
    """Yield the loggers of this project, of the connectors that are imported, and of the packages that these need."""
    yield _OWN
    for name, module in list(sys.modules.items()):
        if name.startswith(_CONNECTORS) and "." not in name:
            yield from (name, *getattr(getattr(module, "DefaultSource", None), "needed_packages", ()))


def _set_level(logger: logging.Logger) -> None:
    level = os.environ.get(_LEVEL)
    if not level:
        return
    try:
        logger.setLevel(level.upper())
    except ValueError:
        logger.warning("%s is %r, and accepted are DEBUG, INFO, WARNING, ERROR: %s=DEBUG", _LEVEL, level, _LEVEL)


def note_query(query: str | None) -> None:
    """Set the query that lines of this process name; ``None`` changes nothing."""
    _context.query = query or _context.query


def noted_query() -> str | None:
    """Return the query that lines of this process name."""
    return _context.query


def query_of_task() -> str | None:
    """Return the name, or the id, of the query that this process's task belongs to; ``None`` outside a task."""
    from pyspark import TaskContext  # noqa: PLC0415 - a task has imported it

    task = TaskContext.get()
    if task is None:
        return None
    # The lines of a batch's job description are the query's name, which may be empty, its id, the run's id, the batch.
    name = (task.getLocalProperty("spark.job.description") or "").partition("\nid = ")[0].strip()
    return name or task.getLocalProperty("sql.streaming.queryId")


def run_of_task() -> str | None:
    """Return the id of the run of the query that this process's task belongs to; ``None`` where that is not known."""
    from pyspark import TaskContext  # noqa: PLC0415 - a task has imported it

    task = TaskContext.get()
    query = None if task is None else task.getLocalProperty("sql.streaming.queryId")
    # Spark's name for the jobs of a run; a program that names its jobs itself hides it.
    run = None if task is None else task.getLocalProperty("spark.jobGroup.id")
    return f"{query} {run}" if query and run and _UUID.fullmatch(run) else None


_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ABOUT = "about"
"""Name in ``extra`` of a line: what it is about. Lines about one thing are alike, whatever record they name."""


class SparkLines(logging.Handler):
    """Writes lines with time, level, query and source; lines of one query that are alike once a minute."""

    def __init__(self, context: LogContext, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._named = context
        self._clock = clock
        self._written: dict[tuple[str, str, str], tuple[float, int]] = {}
        """By logger, query and source, and text or what it is about: when a line was last written, and how often
        repeated since. Queries share the process of a task."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, unless the root logger has a handler or the line was written within the last minute."""
        if logging.getLogger().handlers:
            return
        try:
            line = self.line(record)
            if line is not None:
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()
                if record.levelno >= logging.WARNING:
                    # A stream of the user's in its place may be no file.
                    with contextlib.suppress(OSError, ValueError):
                        wait_until_taken(sys.stderr.fileno(), self._clock)
        except Exception:  # noqa: BLE001 - a line that cannot be written fails no query
            self.handleError(record)

    def line(self, record: logging.LogRecord) -> str | None:
        """Return the line; ``None`` for a repetition, which the next line like it counts."""
        text, now = record.getMessage(), self._clock()
        # A library's lines about one broker differ in the numbers of sockets and milliseconds.
        about = getattr(record, ABOUT, text) if _is_ours(record.name) else record.msg
        key = record.name, str(self._named), str(about)
        written_at, folded = self._written.get(key, (-_FOLDED_SECONDS, 0))
        if now - written_at < _FOLDED_SECONDS:
            self._written[key] = written_at, folded + 1
            return None
        if len(self._written) >= _MOST_LINES:
            self._written = {k: v for k, v in self._written.items() if now - v[0] < _FOLDED_SECONDS}
        self._written[key] = now, 0
        times = "" if not folded else f" ({folded} more like it since the last line)"
        moment = time.strftime("%y/%m/%d %H:%M:%S", time.localtime(record.created))
        level = "WARN" if record.levelno == logging.WARNING else record.levelname
        return f"{moment} {level} {record.name.partition('.')[0]}: {self._named}{text}{times}"


def wait_until_taken(descriptor: int, clock: Callable[[], float]) -> None:
    """Wait, for half a second at most, until what was written to a pipe is taken; another file is not waited for.

    As a query ends, Spark closes its end of the pipe at once, and what nobody has taken is lost: the warnings of a
    run's last plan.
    """
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return
    until = clock() + _LONGEST_TO_TAKE
    while _untaken(descriptor) and clock() < until:
        time.sleep(_LOOK_AGAIN)


def _untaken(pipe: int) -> int:
    """Return how many bytes of a pipe nobody has taken yet."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)


def _is_ours(logger: str) -> bool:
    return logger.startswith((_OWN, _CONNECTORS))
