"""Versions of rows by time: which one was valid at a moment, and which ones nobody can ask for any more.

Pure: arrays in, arrays out. Times are microseconds; a version is valid from its time on until the next one of its key,
and a deletion is a version that holds nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class Version(NamedTuple):
    """What a key had from a time on."""

    time: int
    row: Any
    """``None``: it was deleted."""


def valid_at(keys: Integers, times: Integers, asked_keys: Integers, asked_times: Integers) -> Integers:
    """Return, for each question, the place of the last version of its key at or before its time; -1 if there is none.

    Args:
        keys: of the versions, as numbers.
        times: from when they are valid. Of equal key and time the one further behind is the later one.
        asked_keys: of the questions.
        asked_times: of the questions.
    """
    count = len(keys)
    all_keys, all_times = np.concatenate([keys, asked_keys]), np.concatenate([times, asked_times])
    # Stable, and versions come first in the arrays: one of a question's very time is before the question.
    order = np.lexsort((all_times, all_keys))
    places = np.where(order < count, np.arange(len(order)), -1)
    last = np.maximum.accumulate(places)
    questions = np.flatnonzero(order >= count)
    before = last[questions]
    found = np.full(len(asked_keys), -1, dtype=np.int64)
    of_same_key = (before >= 0) & (all_keys[order[before]] == all_keys[order[questions]])
    found[order[questions[of_same_key]] - count] = order[before[of_same_key]]
    return found


def merged(known: Sequence[Version], new: Sequence[Version]) -> list[Version]:
    """Return the versions of one key in order of time. Of equal times the one that came last counts.

    Both are in order of time; in ``new`` equal times are in the order in which they came.
    """
    if not known or (new and known[-1].time < new[0].time):
        together = [*known, *new]
    else:
        together = sorted([*known, *new], key=lambda version: version.time)  # stable
    return [
        version for version, after in zip_longest(together, together[1:])
        if after is None or after.time != version.time
    ]  # fmt: skip


def needed_after(versions: Sequence[Version], moment: int) -> Sequence[Version]:
    """Return the versions of one key that questions about later times than ``moment`` can be answered with.

    All later ones, and the newest at or before the moment, unless that is a deletion: nothing says the same.
    """
    newest = bisect_right([version.time for version in versions], moment) - 1
    if newest < 0:
        return versions
    return versions[newest + (versions[newest].row is None) :]
