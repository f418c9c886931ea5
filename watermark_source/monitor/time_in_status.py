"""PURE. Time in status: how long each split has been active, idle and so on, added up over successive reports."""

from __future__ import annotations

from collections.abc import Mapping

from watermark_source.monitor.source_status import SourceStatus, SplitView, Status
from watermark_source.planning.split import Split

Totals = Mapping[tuple[Split, Status], int]
"""Milliseconds a split has had a status."""


def add_elapsed(totals: Totals, before: SourceStatus | None, after: SourceStatus) -> Totals:
    """Add the time between two reports of one source.

    A status change is dated by the later report's ``since``, if that lies between the two. Splits that are not in both
    reports add nothing, so the totals are exact only for a source whose splits all fit a report.
    """
    if before is None:
        return totals
    known = {view.split: view for view in before.splits}
    added = dict(totals)
    for view in after.splits:
        if view.split not in known:
            continue
        for status, millis in _spent(known[view.split], view, before.at, after.at):
            key = (view.split, status)
            added[key] = added.get(key, 0) + millis
    return added


def _spent(before: SplitView, after: SplitView, start: int, end: int) -> tuple[tuple[Status, int], ...]:
    if end <= start:
        return ()
    if before.status is after.status:
        return ((after.status, end - start),)
    turned = after.since if after.since is not None and start <= after.since <= end else end
    return (before.status, turned - start), (after.status, end - turned)
