"""``TemporalJoinProcessor``: the state of one bucket of keys, and its probe rows joined as their time comes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from watermark_source.operators.first_watermark import FIRST_WATERMARK, watermark_past
from watermark_source.operators.join_layout import BUILD_FIRST, PROBE_FIRST, JoinLayout
from watermark_source.operators.join_packs import ROWS, of_bytes, to_bytes
from watermark_source.operators.key_values import KeyValues
from watermark_source.operators.version_rows import to_columns, to_rows
from watermark_source.operators.versions import Version, merged, needed_after, valid_at

_BUCKET_STATE = StructType(
    [StructField("layout", StringType()), StructField("due", LongType()), StructField("prune", LongType())]
)
_BINARY = StructType([StructField("value", BinaryType())])
_Times = tuple[int | None, int | None]
_FIRST_MOMENT = -(2**63)


class TemporalJoinProcessor(StatefulProcessor):
    """Joins packs of probe rows with versions of build rows; ``transformWithState`` calls it once a bucket and batch.

    State of a bucket: of each key its versions, or on processing time its latest row; the probe rows that wait for the
    watermark; keys with versions that will not be needed any more; and when to look at these again.
    """

    def __init__(self, layout: JoinLayout) -> None:
        self._layout = layout

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._bucket = handle.getValueState("bucket", _BUCKET_STATE)
        self._versions = KeyValues(handle, "versions")
        self._waiting = handle.getListState("waiting", _BINARY)
        self._stale = handle.getListState("stale", _BINARY)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Take in what changed, then join the probe rows whose time has come; the others wait."""
        probe: list[bytes] = []
        build: list[bytes] = []
        for row in rows:
            (probe if row.is_probe else build).append(row.rows)
        watermark = timerValues.getCurrentWatermarkInMs()
        before = self._times()
        due, prune = before or (None, None)
        if build:
            changes = of_bytes(build)
            if self._layout.processing_time:
                self._take_latest(changes)
            else:
                prune = self._take_versions(changes, _bound(watermark, due), prune)
        if probe:
            asked = of_bytes(probe)
            ready, later = self._by_time(asked, watermark)
            if ready.num_rows:
                yield from self._joined(ready)
            if later.num_rows:
                due = _earlier(due, self._wait(later))
        self._remember(before, (due, prune))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Join the probe rows that waited for this watermark, then drop versions that no row can ask for any more."""
        watermark = timerValues.getCurrentWatermarkInMs()
        before = self._times()
        due, prune = before or (None, None)
        if due is not None and due <= watermark:
            waiting = of_bytes([value[0] for value in self._waiting.get()])
            self._waiting.clear()
            ready, later = self._by_time(waiting, watermark)
            yield from self._joined(ready)
            due = self._wait(later) if later.num_rows else None
        if prune is not None and prune <= watermark:
            prune = self._prune(_bound(watermark, due))
        self._remember(before, (due, prune))

    def close(self) -> None:
        """Nothing is held open."""

    # When to look at the bucket again -------------------------------------------------------------------------------

    def _times(self) -> _Times | None:
        """Return when to look again, for rows that wait and for versions; ``None`` of a bucket without state."""
        known = self._bucket.get()
        if known is None:
            return None
        layout, *times = known
        self._layout.confirm(layout)
        return (times[0], times[1])

    def _remember(self, before: _Times | None, after: _Times) -> None:
        """Note when to look again. A timer that is earlier than needed finds nothing to do."""
        if after == before:
            return
        for moment in {*after} - {*(before or ())}:
            if moment is not None:
                self._handle.registerTimer(moment)
        self._bucket.update((self._layout.described, *after))

    # Probe rows -----------------------------------------------------------------------------------------------------

    def _by_time(self, rows: pa.Table, watermark: int) -> tuple[pa.Table, pa.Table]:
        """Return the rows that can be joined now, and those that cannot yet."""
        if self._layout.processing_time:
            there = watermark >= FIRST_WATERMARK
            return (rows, rows.slice(0, 0)) if there else (rows.slice(0, 0), rows)
        # Without a time: no watermark will ever say more about it.
        now = pc.fill_null(pc.less_equal(rows.column(1), watermark * 1_000), fill_value=True)
        return rows.filter(now), rows.filter(pc.invert(now))

    def _wait(self, rows: pa.Table) -> int:
        """Keep rows for later, and return when that is."""
        self._waiting.appendValue((to_bytes(rows),))
        return FIRST_WATERMARK if self._layout.processing_time else watermark_past(pc.min(rows.column(1)).as_py())

    def _joined(self, rows: pa.Table) -> Iterator[Row]:
        keys = rows.column(0).combine_chunks().dictionary_encode()
        codes = pc.fill_null(keys.indices, -1).to_numpy(zero_copy_only=False)
        values = self._versions.read(keys.dictionary.to_pylist())
        if self._layout.processing_time:
            candidates, found = values, codes.astype(np.int64)
        else:
            candidates, found = _as_of(values, codes, rows.column(1))
        there = np.array([value is not None for value in candidates], dtype=np.bool_)
        if len(there):
            found = np.where((found >= 0) & there[found], found, -1)
        own = rows.select(range(len(PROBE_FIRST), rows.num_columns))
        if self._layout.inner:
            matched = found >= 0
            own, found = own.filter(pa.array(matched)), found[matched]
        if not own.num_rows:
            return
        places = pa.array(found, mask=found < 0)
        for field, column in zip(self._layout.build, to_columns(candidates, self._layout.build.types), strict=True):
            own = own.append_column(field, column.take(places))
        yield Row(**{ROWS: to_bytes(own)})

    # Versions -------------------------------------------------------------------------------------------------------

    def _sorted(self, changes: pa.Table) -> tuple[list[str], pa.Table]:
        """Return the changes in order of key, time, and what else orders them; deletions first where nothing does."""
        first = len(BUILD_FIRST)
        columns = dict(zip(BUILD_FIRST, changes.columns, strict=False))
        ways = [("key", "ascending"), ("time", "ascending")]
        columns["time"] = pc.fill_null(columns["time"], _FIRST_MOMENT)
        for number, column in enumerate(changes.columns[first : first + self._layout.sequence]):
            # What has no number comes first.
            columns |= {f"has {number}": column.is_valid(), f"sequence {number}": column}
            ways += [(f"has {number}", "ascending"), (f"sequence {number}", "ascending")]
        order = pc.sort_indices(pa.table(columns), sort_keys=[*ways, ("gone", "descending")])
        changes = changes.take(order)
        return changes.column(0).to_pylist(), changes

    def _rows(self, changes: pa.Table) -> list[Any]:
        first = len(BUILD_FIRST) + self._layout.sequence
        rows = to_rows(changes.columns[first:], changes.num_rows)
        gone = changes.column(2).to_pylist()
        return [None if deleted else row for row, deleted in zip(rows, gone, strict=True)]

    def _take_latest(self, changes: pa.Table) -> None:
        keys, changes = self._sorted(changes)
        last = [at for at, (key, after) in enumerate(zip(keys, [*keys[1:], None], strict=True)) if key != after]
        rows = self._rows(changes.take(pa.array(last)))
        latest = dict(zip((keys[at] for at in last), rows, strict=True))
        self._versions.write({key: row for key, row in latest.items() if row is not None})
        self._versions.remove(key for key, row in latest.items() if row is None)

    def _take_versions(self, changes: pa.Table, bound: int, prune: int | None) -> int | None:
        """Add versions, and return when to look for those that are not needed any more."""
        keys, changes = self._sorted(changes)
        times = pc.fill_null(changes.column(1), _FIRST_MOMENT).to_pylist()
        new: dict[str, list[Version]] = {}
        for key, time, row in zip(keys, times, self._rows(changes), strict=True):
            new.setdefault(key, []).append(Version(time, row))
        known = self._versions.read(list(new))
        after = {
            key: merged([Version(*each) for each in before or ()], added)
            for (key, added), before in zip(new.items(), known, strict=True)
        }
        stale = self._keep(after, bound)
        if not stale:
            return prune
        self._stale.appendValue((pickle.dumps(list(stale)),))
        return watermark_past(max(stale.values())) if prune is None else prune

    def _keep(self, versions: dict[str, list[Version]], bound: int) -> dict[str, int]:
        """Write the versions that are needed, and return the keys with some that will not be, and the newest's time."""
        needed = {key: needed_after(each, bound) for key, each in versions.items()}
        self._versions.write({key: [tuple(each) for each in kept] for key, kept in needed.items() if kept})
        self._versions.remove(key for key, kept in needed.items() if not kept)
        return {
            key: kept[-1].time for key, kept in needed.items() if len(kept) > 1 or (kept and kept[-1].row is None)
        }  # fmt: skip

    def _prune(self, bound: int) -> int | None:
        """Drop what is not needed any more, and return when to look again."""
        keys = {key for value in self._stale.get() for key in pickle.loads(value[0])}  # noqa: S301 - written above
        self._stale.clear()
        names = sorted(keys)
        known = zip(names, self._versions.read(names), strict=True)
        stale = self._keep({key: [Version(*each) for each in found] for key, found in known if found}, bound)
        if not stale:
            return None
        self._stale.appendValue((pickle.dumps(list(stale)),))
        return watermark_past(max(stale.values()))


def _as_of(values: Sequence[Any], codes: np.ndarray, asked: pa.ChunkedArray) -> tuple[list[Any], np.ndarray]:
    """Return all rows of some keys' versions, and for each question the place of its row among them, or -1."""
    versions = [(code, *version) for code, found in enumerate(values) for version in found or ()]
    keys = np.array([version[0] for version in versions], dtype=np.int64)
    times = np.array([version[1] for version in versions], dtype=np.int64)
    moments = pc.fill_null(asked, _FIRST_MOMENT).to_numpy()
    return [version[2] for version in versions], valid_at(keys, times, codes.astype(np.int64), moments)


def _bound(watermark: int, due: int | None) -> int:
    """Return the time, in microseconds, before which nobody asks: of the watermark, or of a row that still waits."""
    return (watermark if due is None else min(watermark, due - 1)) * 1_000


def _earlier(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)
