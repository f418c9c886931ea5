"""Marks in the commits of a Delta table: the ``userMetadata`` with which a ``foreachBatch`` function wrote a batch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from multiprocessing.pool import ThreadPool

from watermark_source.errors import CorruptDataError, shortened
from watermark_source.publishing.folder import Folder
from watermark_source.publishing.mark import Mark, decoded

_LOG = "_delta_log"
_MOST_KEPT = 100_000
_AT_ONCE = 32
"""Commits that are read at once: a month of them, one a minute, would take an object store half an hour."""


def marks_in_commits(folder: Folder) -> Iterator[Mark]:
    """Yield the marks in the commits that a Delta table still has; none of a folder that is no Delta table.

    Delta keeps commits for thirty days (``delta.logRetentionDuration``). A name whose queries take turns is several
    writers, the newest of which keeps it: of one query only a new checkpoint has another id, and that
    before it does not come back.
    """
    times = folder.times(_LOG)
    names = sorted(name for name in times if name.removesuffix(".json").isdecimal() and name.endswith(".json"))
    with ThreadPool(min(_AT_ONCE, len(names) or 1)) as threads:
        found = threads.map(lambda name: _of_commit(folder, name, times[name]), names)
    marks = [mark for mark in found if mark is not None]
    turns: dict[str, list[str]] = defaultdict(list)
    for mark in marks:
        if turns[mark.writer][-1:] != [mark.query]:
            turns[mark.writer].append(mark.query)
    for mark in marks:
        queries = turns[mark.writer]
        is_plain = len(queries) == len(set(queries)) or mark.query == queries[-1]
        yield mark if is_plain else replace(mark, writer=f"{mark.writer} of query {mark.query}")


@lru_cache(_MOST_KEPT)
def _of_commit(folder: Folder, name: str, written_at: float) -> Mark | None:
    """Return the mark of a commit, which never changes: a file of another table in this folder has another time."""
    del written_at
    content = folder.read(f"{_LOG}/{name}") or b""
    for line in content.splitlines():
        if b'"commitInfo"' in line and b'"userMetadata"' in line:
            try:
                text = json.loads(line)["commitInfo"]["userMetadata"]
            except (KeyError, TypeError, ValueError):
                raise CorruptDataError(
                    f"{folder.path}/{_LOG}/{name} is not a commit of Delta: seen {shortened(line)}"
                ) from None
            return decoded(text, f"userMetadata of {folder.path}/{_LOG}/{name}")
    return None
