"""What fails in a store's database: tried again where another member is the reason, and named as an error of ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from watermark_source.errors import OptionError, RefusedError, UnreachableError

EXAMPLE = "postgresql+psycopg://user@host/database"
not_accepted = partial(OptionError, "alignmentStore", example=EXAMPLE)
"""Make the error of a value of ``alignmentStore`` from what was seen, and what is accepted."""

_TRIES, _RETRY_AFTER = 3, 0.05


def create(table: Callable[[], object], failure: type[Exception]) -> None:
    """Create a table unless it exists; retried: another member may hold the file locked, or create it at once."""
    for _ in range(_TRIES - 1):
        try:
            table()
        except failure:
            time.sleep(_RETRY_AFTER)
        else:
            return
    table()


def unanswered(location: str, reason: object) -> UnreachableError:
    """Return the error of a database that does not answer."""
    return UnreachableError(f"the store of the alignment group, {location}, does not answer: {reason}")


def refused(location: str, reason: object) -> RefusedError:
    """Return the error of a database that answers: the table, or its content, is not what members write."""
    return RefusedError(f"the store of the alignment group, {location}, refuses: {reason}")
