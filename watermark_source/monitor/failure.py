"""What ended a query: the error itself, out of the text that Spark has about it. Pure.

The error is first only where it began in Spark. What began in Python, in a source or in ``foreachBatch``, is the end of
a traceback, whose frames are indented, and which Spark puts between words of its own and the stack of the JVM.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from watermark_source.errors import shortened

_TRACEBACK: Final = "Traceback (most recent call last):"
_BEHIND: Final = re.compile(r"\n(?:\tat |=== Streaming Query ===|(?:JVM|Driver) stacktrace:)")
_STATE: Final = re.compile(r"(?:\s+SQLSTATE: \w+)+\s*$")
_OWN: Final = re.compile(r"watermark_source\.errors\.(\w+): ")
_BEFORE: Final = re.compile(
    r"\A(?:\[STREAM_FAILED\] Query \[.*?\] terminated with exception: "
    r"|(?:[\w.$]+: )?Job aborted due to stage failure: .*?\(TID \d+\) \(.*?\): "
    r"|[\w.$]+: (?=\[[A-Z]))+"
)
_CAUSE: Final = "Caused by: "
_HAS_NO_MESSAGE: Final = re.compile(
    r"(?:[\w.$]+(?:: ?|$))?(?:\[\w+\] )?((Writing job|Job) aborted\.?|Exception thrown in awaitResult:)?"
)
_MOST: Final = 1_000
"""Characters: what to do is at the end of a message."""
_READ: Final = 4 * _MOST
"""Characters of an error that are looked at, with what is left out before it: some of the patterns take long."""


class Failure(NamedTuple):
    """The error that ended a query."""

    text: str
    """On one line."""
    own: str = ""
    """Its class where it is one of this project's, whose messages state what to do; empty if it is another."""


def failure_of(text: str) -> Failure:
    """Return the error out of the text of Spark's exception, or of the event of a query's end."""
    # The last one: a stack of the JVM may be within the text of an error that was the cause of another in Python.
    _, found, trace = text.rpartition(_TRACEBACK)
    raised = re.search(r"\n(\S.*)", _BEHIND.split(trace, maxsplit=1)[0], re.DOTALL) if found else None
    error = _of_jvm(text) if raised is None else _STATE.sub("", raised[1][:_READ])
    own = _OWN.match(error)
    if own is not None:
        return Failure(shortened(error[own.end() :].strip(), _MOST), own[1])
    return Failure(shortened(_BEFORE.sub("", error).strip(), _MOST))


def _of_jvm(text: str) -> str:
    """Return the first error of a chain of causes that has a message."""
    first, *others = (line[:_READ] for line in text.strip().split("\n"))
    chain = [first, *(line.removeprefix(_CAUSE) for line in others if line.startswith(_CAUSE))]
    errors = [_STATE.sub("", error) for error in chain]
    return next((error for error in errors if not _HAS_NO_MESSAGE.fullmatch(error)), errors[0])
