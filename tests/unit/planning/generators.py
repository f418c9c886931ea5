"""Watermark strategies of a user's own, which options name: good ones, and some that break the contract."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from typing import Any

import pyarrow as pa

from watermark_source import RowsRead, Silence, WatermarkGenerator

HERE = __name__
MINUTE = 60_000


class ByParity(WatermarkGenerator):
    """Waits for a second range before there is a watermark, and is half as far behind on even partitions."""

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        count = 1 if state is None else state["ranges"] + 1
        bound = MINUTE if rows.number % 2 else MINUTE // 2
        return (None if count == 1 or rows.highest is None else rows.highest - bound), {"ranges": count}

    def check_state(self, state: Any) -> None:
        if not isinstance(state, dict) or state.keys() != {"ranges"}:
            raise ValueError("it must have ranges")


class Renamed(ByParity):
    formerly = (f"{HERE}:ByParity",)


class LaterOfMarkAndBound(WatermarkGenerator):
    """Heartbeats, and without them a bound of a minute."""

    reads_marks = True

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        bounded = None if rows.highest is None else rows.highest - MINUTE
        return max((w for w in (rows.marked, bounded) if w is not None), default=None), None


class RangesAndRows(ByParity):
    """Counts the rows, too, which tasks tell of: a part that is lost or taken twice shows."""

    def summarize(self, rows: pa.RecordBatch) -> int:
        return int(rows.num_rows)

    def merge(self, first: int, second: int) -> int:
        return first + second

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        before = state or {"ranges": 0, "rows": 0}
        found, _ = super().on_range(rows, {"ranges": before["ranges"]} if state else None)
        return found, {"ranges": before["ranges"] + 1, "rows": before["rows"] + rows.summary}

    def check_state(self, state: Any) -> None:
        return None


class AMinuteOfSilence(WatermarkGenerator):
    """What is a minute old has come, if nothing comes; not before there was a row."""

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        return None, "begun"

    def on_silence(self, silence: Silence, state: Any) -> int | None:
        return silence.now - MINUTE if state == "begun" else None


class TellsTheFuture(AMinuteOfSilence):
    def on_silence(self, silence: Silence, state: Any) -> int | None:
        return silence.now + 1


class FailsInSilence(AMinuteOfSilence):
    def on_silence(self, silence: Silence, state: Any) -> int | None:
        raise KeyError("bound")


class AHalfInSilence(AMinuteOfSilence):
    def on_silence(self, silence: Silence, state: Any) -> int | None:
        return 0.5  # type: ignore[return-value]


class NeverMerges(ByParity):
    def summarize(self, rows: pa.RecordBatch) -> int:
        return int(rows.num_rows)


class FirstRow(RangesAndRows):
    """Depends on where the rows are cut."""

    def merge(self, first: int, second: int) -> int:
        return max(first, second)


class SumsUpASet(RangesAndRows):
    def summarize(self, rows: pa.RecordBatch) -> Any:
        return {1}


class FailsInTasks(RangesAndRows):
    def summarize(self, rows: pa.RecordBatch) -> Any:
        return rows.column("no such")


class Returns(WatermarkGenerator):
    """Returns what a class derived from it states."""

    returned: Any

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        found: tuple[int | None, Any] = self.returned
        return found


class NoPair(Returns):
    returned = 7


class AText(Returns):
    returned = ("2026-01-01", None)


class ATruth(Returns):
    returned = (True, None)


class TheEndOfTime(Returns):
    returned = (2**63 - 1, None)


class ASet(Returns):
    returned = (7, {1})


class ATuple(Returns):
    returned = (7, (1, 2))


class NumbersAsKeys(Returns):
    returned = (7, {1: 2})


class NoNumber(Returns):
    returned = (7, float("nan"))


class HalfACharacter(Returns):
    returned = (7, "\ud800")


class TooMuch(Returns):
    returned = (7, "ä" * 600)


class Fails(WatermarkGenerator):
    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        raise KeyError("bound")


class Exits(WatermarkGenerator):
    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        raise SystemExit("no bound")


class ExitsAtOnce(ByParity):
    def __init__(self) -> None:
        raise SystemExit(2)


class Backwards(WatermarkGenerator):
    """Returns lower watermarks from one range to the next."""

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        count = (state or 0) + 1
        return (rows.highest or 0) - count * count * MINUTE, count


class ByTheClock(WatermarkGenerator):
    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        return int(time.time() * 1_000), None


class InTheInstance(WatermarkGenerator):
    """Counts in the instance what belongs in the state."""

    def __init__(self) -> None:
        self.count = itertools.count()

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        return (rows.highest or 0) - next(self.count), None


class Grows(WatermarkGenerator):
    """Keeps all it has seen."""

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        return rows.highest, [*(state or []), rows.highest]


class NeedsArguments(WatermarkGenerator):
    def __init__(self, bound: int) -> None:
        self.bound = bound

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        return None, None


class FormerlyAText(ByParity):
    formerly = "a:B"


class NoGenerator:
    pass


def function() -> None: ...


class Silent(WatermarkGenerator):
    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        return None, None


class Connects(ByParity):
    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        with socket.socket() as connection:
            connection.connect(("127.0.0.1", 9))
        return super().on_range(rows, state)


class RefusesItself(ByParity):
    def check_state(self, state: Any) -> None:
        raise ValueError("not mine")


class NeverReturns(WatermarkGenerator):
    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)
