"""Aggregator: the minimum of the latest value of each key, kept up to date without looking at all of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from watermark_source.eventtime.watermark import Millis

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Aggregator(Generic[K]):
    """Latest value of each key, and the minimum of them; None when there is none."""

    values: Mapping[K, Millis] = field(default_factory=dict)
    minimum: Millis | None = None


def latest(state: Aggregator[K], key: K, value: Millis) -> Aggregator[K]:
    """Return the state with the key's latest value, which may be lower or higher than before.

    The values are only searched when the one that was the minimum rises (FLINK-32420).
    """
    values = {**state.values, key: value}
    minimum = state.minimum
    if minimum is None or value <= minimum:
        return Aggregator(values, value)
    if state.values.get(key) == minimum:
        minimum = min(values.values())
    return Aggregator(values, minimum)


def latest_of_all(state: Aggregator[K], values: Mapping[K, Millis]) -> Aggregator[K]:
    """Return the state with the latest values of many keys at once: O(keys) for all of them together."""
    merged = {**state.values, **values}
    return Aggregator(merged, min(merged.values(), default=None))


def removed(state: Aggregator[K], key: K) -> Aggregator[K]:
    """Return the state without the key; never leaves its value behind as the minimum."""
    if key not in state.values:
        return state
    values = {k: v for k, v in state.values.items() if k != key}
    return Aggregator(
        values, min(values.values(), default=None) if state.values[key] == state.minimum else state.minimum
    )
