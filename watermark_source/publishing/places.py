"""``complete_until``: what the writers of a table have stated, in its folder, in its commits, or in a database.

Without Spark, which programs that only ask need not have.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

from watermark_source.publishing.database import is_url, marks_in_database
from watermark_source.publishing.delta import marks_in_commits
from watermark_source.publishing.folder import Folder, marks_of
from watermark_source.publishing.mark import Holder, Mark, holder_of, newest


def complete_until(place: str | Path, writers: Collection[str] = ()) -> dt.datetime | None:
    """Return the time before which every row that is on time is in a table; ``None`` while nothing is known.

    For windows: each window that ends by then is in it. Of several writers the lowest time counts.

    Args:
        place: the table's folder, as in ``publish_completeness``, and on this machine without a scheme; or the URL of
            a database with the name of the table, ``sqlite:////data/shop.db#counts``.
        writers: names of writers that count even before they have written for the first time.

    Returns:
        A time in UTC; the last that a ``datetime`` can have where all writers have announced the end.

    Raises:
        UsageError: the place is not accepted.
        SourceError: it cannot be read, or a database has not answered for two minutes.
    """
    holder = holder_at(place, writers)
    return None if holder is None or holder.mark is None else holder.mark.until


def holder_at(place: str | Path, writers: Collection[str] = ()) -> Holder | None:
    """Return the writer that holds the time of a table; ``None`` while none has stated anything.

    Args:
        place: as ``complete_until`` takes it.
        writers: names of writers that count before they have stated anything.

    Raises:
        UsageError: the place is not accepted.
        SourceError: it cannot be read; ``CorruptDataError``: what is there is not a mark.
    """
    marks: Iterable[Mark]
    if is_url(text := str(place)):
        marks = marks_in_database(text)
    else:
        folder = Folder.at(text)
        marks = chain(marks_of(folder).values(), marks_in_commits(folder))
    return holder_of(newest(marks), writers)
