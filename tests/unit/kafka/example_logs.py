"""Logs in a dictionary, in the place of a cluster, for resolving positions."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

T0, T1, T2 = (Split("t", number) for number in range(3))


@dataclass(frozen=True)
class Log:
    """Timestamps of one log, from offset 10 on."""

    timestamps: tuple[int, ...]


class Logs:
    def __init__(self, logs: Mapping[Split, Log]) -> None:
        self._logs = logs

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        return dict.fromkeys(splits, 10)

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        return {split: 10 + len(self._logs[split].timestamps) for split in splits}

    def at_time(self, wanted: Mapping[Split, Millis]) -> Mapping[Split, int | None]:
        return {
            split: next((10 + n for n, ts in enumerate(self._logs[split].timestamps) if ts >= millis), None)
            for split, millis in wanted.items()
        }


LOGS = Logs({T0: Log((100, 300, 200)), T1: Log((50,)), T2: Log(())})
