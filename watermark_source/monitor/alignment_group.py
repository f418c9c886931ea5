"""``python -m watermark_source group``: lists the sources of an alignment group, and has one leave it for good."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final, TextIO

from watermark_source.durations import format_duration
from watermark_source.errors import UsageError, listed, printable
from watermark_source.group_store import store_waits
from watermark_source.group_store.database import store_of
from watermark_source.group_store.statements import LISTED
from watermark_source.group_store.store import Identity, MemberRow, Store
from watermark_source.monitor.doctor import variable_of
from watermark_source.option_table import OptionTable
from watermark_source.planning.group import SILENT_FROM
from watermark_source.planning.watermark import watermark_text
from watermark_source.spark.option_rows import DRIVER, ENGINE_OPTIONS, NO_STORE

OPTIONS: Final = OptionTable(tuple(row for row in ENGINE_OPTIONS if row.name in ("alignmentGroup", "alignmentStore")))


def group(given: Mapping[str, str], source: str | None, out: TextIO) -> None:
    """List the sources of a group, after one has left it if it is named, which takes some seconds: the others do not
    wait until its time to live is over.

    Args:
        given: ``alignmentGroup`` and ``alignmentStore``.
        source: the name of the source that leaves, if one does.
        out: where the lines go.

    Raises:
        UsageError: there is no such source, or it still reports.
        OptionError, SourceError: nothing was done.
    """
    values = OPTIONS.parse(given)
    if values["alignmentGroup"] is None or values["alignmentStore"] in (DRIVER, NO_STORE):
        raise UsageError(
            "group: expected --alignmentGroup NAME, and the URL of the group's database as the environment variable "
            f"{variable_of('alignmentStore')}. The sources of one driver have no other store than the driver's"
        )
    identity = Identity(values["alignmentGroup"], "command", "command", None, 0)
    with closing(store_of(values["alignmentStore"])) as store:
        if source is not None:
            _leave(store, identity, source)
            out.write(f"{source} has left the group {identity.group}\n")
        rows = store.members(identity)
        for row in rows:
            silent = format_duration(max(0, row.silent))
            until = "" if row.silent <= row.time_to_live else ", longer than its alignmentTimeToLive: not waited for"
            status = f"{printable(row.status)}, {watermark_text(row.watermark)}"
            out.write(f"{printable(row.source)}: {status}, reported {silent} ago{until}\n")
        if len(rows) == LISTED:
            out.write(f"there may be more: these {LISTED} have reported nothing for longest\n")
        if not rows:
            out.write(f"the group {identity.group} has no source in {store.location}\n")


def _leave(store: Store, identity: Identity, source: str) -> None:
    _silent(store, identity, source, SILENT_FROM)
    # A source on a slow store, or on one that was away until now, reports again within this time.
    longest = store_waits.CUT_AFTER + store_waits.MOST_EASE
    time.sleep(longest)
    for row in _silent(store, identity, source, longest * 1_000):
        # Of a source that has started again meanwhile, another process has the row.
        store.leave(identity._replace(member=row.member, writer=row.writer))


def _silent(store: Store, identity: Identity, source: str, since: float) -> Sequence[MemberRow]:
    """Return the rows of a source that were written at least so many milliseconds ago; raises without one."""
    rows = store.members(identity)
    named = [row for row in rows if row.source == source]
    gone = [row for row in named if row.silent >= since and row.member]
    if not named:
        raise UsageError(
            f"leave {source}: the group {identity.group} has the sources {listed(row.source for row in rows) or 'none'}"
        )
    if not gone:
        raise UsageError(f"leave {source}: it reports, and would be in the group again at once; stop its query first")
    return gone
