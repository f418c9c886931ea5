"""Lineage: which log a position is of, where names and positions alone do not tell.

A log that was deleted and created again has another id. And a replica that lacks rows and leads the log all the same
gives their positions to other rows, which belong to a later epoch: there is one for each leader that wrote (KIP-101,
KIP-320).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from watermark_source.planning.split import Split
from watermark_source.planning.state import Epoch, SplitState


class Parting(NamedTuple):
    """Where a log stops being the one that was read."""

    position: int
    by: int
    """The epoch of the rows that it has from there on, or of its leader."""


History: TypeAlias = Sequence[Epoch]
"""The epochs of a log as it is now, the newest first."""


class Cut(NamedTuple):
    """Where a log stops being the one whose end a plan has seen."""

    at: Parting
    end: int
    """The end that was seen."""


def cut(end: int, leader: int, history: History) -> Cut | None:
    """Return where a log parts from the one that ended at ``end``, led in epoch ``leader``; ``None`` if it has all.

    That leader may have written no row.
    """
    if history[0].number <= leader:
        return None
    at = parting(end, Epoch(leader, end), history)
    return None if at is None else Cut(at, end)


def epoch_at(history: History, position: int) -> Epoch | None:
    """Return the epoch of the row before a position; ``None`` if the history does not reach it."""
    return next((epoch for epoch in history if epoch.start < position), None)


def parting(position: int, known: Epoch, history: History) -> Parting | None:
    """Return where a log parts from the one that was read up to a position; ``None`` if it has all of it still.

    ``known`` is the epoch of the last row read. Rows of it are missing if a later epoch begins before the position. If
    the log has earlier epochs, but not this one, none of its rows is there.
    """
    later = [epoch for epoch in history if epoch.number > known.number]
    lacks_it = len(later) < len(history) and history[len(later)].number != known.number
    if not later:
        # Of a leader whose epoch is an earlier one nothing is known to be the same.
        return Parting(0, history[0].number) if lacks_it else None
    at = min(later[-1].start, known.start) if lacks_it else later[-1].start
    return Parting(at, later[-1].number) if at < position else None


def led_by_earlier(splits: Mapping[Split, SplitState], histories: Mapping[Split, History]) -> Set[Split]:
    """Return the splits whose leader has an earlier epoch than the last row that was read."""
    return {
        split
        for split, history in histories.items()
        if (at := splits.get(split)) is not None and at.epoch is not None and history[0].number < at.epoch.number
    }


def with_epochs(splits: Mapping[Split, SplitState], histories: Mapping[Split, History]) -> Mapping[Split, SplitState]:
    """Return planned splits with the epoch of the last row before each position."""
    changed = {
        split: replace(splits[split], epoch=epoch)
        for split, history in histories.items()
        if split in splits and (epoch := epoch_at(history, splits[split].position)) != splits[split].epoch
    }
    return {**splits, **changed} if changed else splits
