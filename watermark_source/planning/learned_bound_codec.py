"""What was learned of disorder, as it stands in an offset: one histogram a source, and a few bytes of some splits."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from watermark_source.eventtime.disorder import BUCKETS, Counts
from watermark_source.eventtime.percentile import Learned
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState

KEY = "learned"
_KEYS = {"bound", "recent", "earlier", "behind"}


def encode_learned(learned: Learned | None, splits: Mapping[Split, SplitState]) -> dict[str, Any] | None:
    """Return the value of ``KEY``.

    ``behind`` names the splits whose watermark is not behind their highest event time by the bound: one that became
    larger moves none back.
    """
    if learned is None:
        return None
    behind: dict[str, dict[str, int | None]] = {}
    for (log, number), state in splits.items():
        if state.highest != _usual(state, learned):
            at = None if state.highest is None else state.highest - (state.watermark or 0)
            behind.setdefault(log, {})[str(number)] = at
    found: dict[str, Any] = {
        "behind": {log: dict(sorted(numbers.items())) for log, numbers in sorted(behind.items())},
        "bound": learned.bound,
        "earlier": _flat(learned.earlier),
        "recent": _flat(learned.recent),
    }
    return {key: value for key, value in found.items() if key == "bound" or value}


def decode_learned(
    told: object, splits: Mapping[Split, SplitState]
) -> tuple[Learned | None, dict[Split, Millis | None]]:
    """Return what was learned, and the highest event time of each split.

    Raises:
        ValueError: it is nothing that ``encode_learned`` writes.
    """
    if told is None:
        return None, {}
    if not isinstance(told, Mapping) or not {"bound"} <= told.keys() <= _KEYS:
        raise ValueError
    learned = Learned(
        _number(told["bound"], 0, MAX), _counts(told.get("recent", [])), _counts(told.get("earlier", []))
    )  # fmt: skip
    highest = {split: _usual(state, learned) for split, state in splits.items()}
    known = {(s.log, str(s.number)): s for s in splits} if "behind" in told else {}
    for log, numbers in _mapping(told.get("behind", {})).items():
        for number, at in _mapping(numbers).items():
            split = known.get((log, number))
            if split is None:
                raise ValueError
            base = splits[split].watermark or 0
            highest[split] = None if at is None else Millis(base + _number(at, MIN - base, MAX - base))
    return learned, highest


def _usual(state: SplitState, learned: Learned) -> Millis | None:
    """Return the highest event time that goes with the watermark and the bound."""
    highest = None if state.watermark is None else state.watermark + learned.bound + 1
    return None if highest is None or highest > MAX else Millis(highest)


def _flat(counts: Counts) -> list[int]:
    return [number for pair in counts for number in pair]


def _counts(numbers: object) -> Counts:
    if not isinstance(numbers, list):
        raise ValueError  # noqa: TRY004 - as for all that is broken
    buckets = tuple(_number(bucket, 0, BUCKETS - 1) for bucket in numbers[::2])
    if any(a >= b for a, b in pairwise(buckets)):
        raise ValueError
    return tuple(zip(buckets, (_number(rows, 1, MAX) for rows in numbers[1::2]), strict=True))


def _number(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError
    return value
