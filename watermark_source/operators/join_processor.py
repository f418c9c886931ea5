"""``TemporalJoinProcessor``: the state of one bucket of keys, and its probe rows joined as their time comes."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from watermark_source.errors import UsageError
from watermark_source.operators.bucketed_batches import gathered
from watermark_source.operators.packs import IS_PROBE, ROWS, of_bytes, stream_bytes
from watermark_source.operators.state_calls import KeyValues, value_of
from watermark_source.operators.waiting_rows import (
    FIRST_WATERMARK,
    Buffer,
    MapPieces,
    RowLayout,
    Waiting,
    watermark_past,
)

if TYPE_CHECKING:
    import pandas as pd


# Versions of rows by time: which one was valid at a moment, and which ones nobody can ask for any more.
#
# Pure: arrays in, arrays out. Times are microseconds; a version is valid from its time on until the next one of its
# key, and a deletion is a version that holds nothing.


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


# Rows of the build side as they are in state: one tuple of plain values a row, and back to Arrow columns.
#
# Moments, dates and spans of time travel as their integers: exact, and without Python's calendar. Texts travel as
# their bytes: Spark's need not be UTF-8. Both also within structs, arrays and maps.


Row = tuple[Any, ...]

_PLAIN = {
    pa.types.is_timestamp: pa.int64(),
    pa.types.is_duration: pa.int64(),
    pa.types.is_time64: pa.int64(),
    pa.types.is_date32: pa.int32(),
    pa.types.is_string: pa.binary(),
}


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values as Python holds all of them."""
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_plain(member.type)) for member in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_plain(key.type)), item.with_type(_plain(item.type)))
    return next((plain for is_it, plain in _PLAIN.items() if is_it(kind)), kind)


def to_rows(columns: Sequence[pa.ChunkedArray], count: int) -> list[Row]:
    """Return the rows of some columns, which may be none."""
    if not columns:
        return [()] * count
    return list(zip(*(column.cast(_plain(column.type)).to_pylist() for column in columns), strict=True))


def to_columns(rows: Sequence[Row | None], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns of rows; a row that is ``None`` is null in all of them."""
    nothing = (None,) * len(kinds)
    cells = list(zip(*(nothing if row is None else row for row in rows), strict=True)) or [()] * len(kinds)
    return [
        # Not safe: bytes become a text whatever they are.
        pa.array(values, _plain(kind)).cast(kind, safe=False)
        for values, kind in zip(cells, kinds, strict=True)
    ]


# What the state of a temporal join depends on: the columns of its packs, and what a checkpoint is held to.


PROBE_FIRST = ("key", "time")
"""The columns of a probe pack before the rows' own."""
BUILD_FIRST = ("key", "time", "gone")
"""The columns of a build pack before those that order changes of equal time, and the rows' own."""


@dataclass(frozen=True, slots=True)
class JoinLayout:
    """One join; picklable."""

    processing_time: bool
    inner: bool
    sequence: int
    """How many columns order changes of equal time."""
    probe: pa.Schema
    """Of probe packs: ``PROBE_FIRST``, then the probe's own columns."""
    build: pa.Schema
    """The columns that the join adds to the probe's."""
    described: str
    """What state is held to; two joins of which this differs cannot go on with each other's state."""

    @property
    def name(self) -> str:
        """The join as Spark's plan shows it."""
        return f"temporal_join[{'processing time' if self.processing_time else 'event time'}]"

    def confirm(self, found: str) -> None:
        """Raise ``UsageError`` if state was written by another join than this."""
        if found != self.described:
            raise UsageError(
                f"{self.name}: the state in the checkpoint is of another join. Seen: {found}. Now: {self.described}. "
                "Columns, their types, on, the kind of time and buckets of a query stay as they are; start with a new "
                "checkpointLocation"
            )


_BUCKET_STATE = StructType(
    [StructField("layout", StringType()), StructField("waiting", BinaryType()), StructField("prune", LongType())]
)
_BINARY = StructType([StructField("value", BinaryType())])
_FIRST_MOMENT, _NEVER = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Bucket:
    """What a bucket knows beside its versions."""

    waiting: Waiting = field(default_factory=Waiting)
    """Which rows wait, as pieces."""
    prune: int | None = None
    """The watermark, in milliseconds, at which some versions are not needed any more."""

    @property
    def moments(self) -> set[int | None]:
        """When to look at it again."""
        return {self.waiting.alarm, self.prune}


class TemporalJoinProcessor(StatefulProcessor):
    """Joins packs of probe rows with versions of build rows, for ``transformWithStateInPandas``; keyed by the bucket.

    State of a bucket: of each key its versions, or on processing time its latest row; the probe rows that wait for the
    watermark; keys with versions that will not be needed any more; and when to look at these again.
    """

    def __init__(self, layout: JoinLayout) -> None:
        self._layout = layout
        self._rows = RowLayout(layout.probe, PROBE_FIRST.index("time"))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._bucket = handle.getValueState("bucket", _BUCKET_STATE)
        self._versions = KeyValues(handle, "versions")
        self._pieces = MapPieces(handle, "waiting")
        self._stale = handle.getListState("stale", _BINARY)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take in what changed, then join the probe rows whose time has come; the others wait."""
        probe: list[bytes] = []
        build: list[bytes] = []
        for frame in rows:
            for is_probe, pack in zip(frame[IS_PROBE].tolist(), frame[ROWS].tolist(), strict=True):
                (probe if is_probe else build).append(pack)
        before = self._known()
        after = before or _Bucket()
        if build:
            changes = pa.Table.from_batches(of_bytes(build))
            if self._layout.processing_time:
                self._take_latest(changes)
            else:
                after = replace(after, prune=self._take_versions(changes, after.prune))
        if probe:
            watermark = timerValues.getCurrentWatermarkInMs()
            buffer = Buffer(self._rows, self._pieces, after.waiting)
            for asked in gathered(of_bytes(probe)):
                # Without a watermark Spark tells 0, and rows of 1970 wait like all others.
                ready = buffer.take_in(asked, watermark * 1_000 if watermark >= FIRST_WATERMARK else None)
                if ready.num_rows:
                    yield from self._joined(ready)
            buffer.merge_small()
            after = replace(after, waiting=buffer.waiting)
        self._remember(before, after)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Join the probe rows that waited for this watermark, then drop versions that no row can ask for any more."""
        watermark = timerValues.getCurrentWatermarkInMs()
        before = self._known()
        after = before or _Bucket()
        buffer = Buffer(self._rows, self._pieces, after.waiting)
        for ready in buffer.release(watermark * 1_000):
            yield from self._joined(ready)
        after = replace(after, waiting=buffer.waiting)
        if after.prune is not None and after.prune <= watermark:
            after = replace(after, prune=self._prune(watermark * 1_000))
        self._remember(before, after)

    def close(self) -> None:
        """Nothing is held open."""

    # When to look at the bucket again -------------------------------------------------------------------------------

    def _known(self) -> _Bucket | None:
        """Return what the bucket knows; ``None`` of one without state."""
        known = value_of(self._bucket)
        if known is None:
            return None
        layout, waiting, prune = known
        self._layout.confirm(layout)
        return _Bucket(Waiting.decode(bytes(waiting)), prune)

    def _remember(self, before: _Bucket | None, after: _Bucket) -> None:
        """Note what the bucket knows. A timer that is earlier than needed finds nothing to do."""
        if after == before:
            return
        for moment in after.moments - (before or _Bucket()).moments:
            if moment is not None:
                self._handle.registerTimer(moment)
        self._bucket.update((self._layout.described, after.waiting.encode(), after.prune))

    # Probe rows -----------------------------------------------------------------------------------------------------

    def _joined(self, rows: pa.RecordBatch) -> Iterator[pd.DataFrame]:
        keys = rows.column(0).dictionary_encode()
        codes = pc.fill_null(keys.indices, -1).to_numpy(zero_copy_only=False)
        values = self._versions.read(keys.dictionary.to_pylist())
        if self._layout.processing_time:
            candidates, found = values, codes.astype(np.int64)
        else:
            candidates, found = _as_of(values, codes, rows.column(1))
        there = np.array([value is not None for value in candidates], dtype=np.bool_)
        if len(there):
            found = np.where((found >= 0) & there[found], found, -1)
        own = rows.select(list(range(len(PROBE_FIRST), rows.num_columns)))
        if self._layout.inner:
            matched = found >= 0
            own, found = own.filter(pa.array(matched)), found[matched]
        if not own.num_rows:
            return
        places = pa.array(found, mask=found < 0)
        for added, column in zip(self._layout.build, to_columns(candidates, self._layout.build.types), strict=True):
            own = own.append_column(added, column.take(places))
        # Spark's stateful operators have loaded it by now; the driver need not.
        import pandas as pd  # noqa: PLC0415 - see above

        yield pd.DataFrame({ROWS: [stream_bytes(own)]})

    # Versions -------------------------------------------------------------------------------------------------------

    def _sorted(self, changes: pa.Table) -> tuple[list[bytes], pa.Table]:
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

    def _contents(self, changes: pa.Table) -> list[Any]:
        first = len(BUILD_FIRST) + self._layout.sequence
        rows = to_rows(changes.columns[first:], changes.num_rows)
        gone = changes.column(2).to_pylist()
        return [None if deleted else row for row, deleted in zip(rows, gone, strict=True)]

    def _take_latest(self, changes: pa.Table) -> None:
        keys, changes = self._sorted(changes)
        last = [at for at, (key, after) in enumerate(zip(keys, [*keys[1:], None], strict=True)) if key != after]
        rows = self._contents(changes.take(pa.array(last)))
        latest = dict(zip((keys[at] for at in last), rows, strict=True))
        self._versions.write({key: row for key, row in latest.items() if row is not None})
        self._versions.remove(key for key, row in latest.items() if row is None)

    def _take_versions(self, changes: pa.Table, prune: int | None) -> int | None:
        """Add versions, and return when to look for those that are not needed any more.

        None is dropped here: rows of the same batch ask for versions that the watermark has passed, where the probe
        side comes from an operator that waited for it.
        """
        keys, changes = self._sorted(changes)
        times = pc.fill_null(changes.column(1), _FIRST_MOMENT).to_pylist()
        new: dict[bytes, list[Version]] = {}
        for key, time, row in zip(keys, times, self._contents(changes), strict=True):
            new.setdefault(key, []).append(Version(time, row))
        known = self._versions.read(list(new))
        after = {
            key: merged([Version(*each) for each in before or ()], added)
            for (key, added), before in zip(new.items(), known, strict=True)
        }
        stale = self._keep(after, _FIRST_MOMENT)
        if not stale:
            return prune
        self._stale.appendValue((pickle.dumps(list(stale)),))
        return min(_worth_a_look(stale), prune or _NEVER)

    def _keep(self, versions: dict[bytes, list[Version]], bound: int) -> dict[bytes, int]:
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
        return _worth_a_look(stale)


def _worth_a_look(stale: dict[bytes, int]) -> int:
    """Return the watermark at which half of some keys have versions that are not needed any more.

    So a key costs no more than two looks on average, and no version of a far time holds up the others.
    """
    return watermark_past(sorted(stale.values())[(len(stale) - 1) // 2])


def _as_of(values: Sequence[Any], codes: np.ndarray, asked: pa.Array) -> tuple[list[Any], np.ndarray]:
    """Return all rows of some keys' versions, and for each question the place of its row among them, or -1."""
    versions = [(code, *version) for code, found in enumerate(values) for version in found or ()]
    keys = np.array([version[0] for version in versions], dtype=np.int64)
    times = np.array([version[1] for version in versions], dtype=np.int64)
    # Without a time it is no question.
    codes = np.where(asked.is_valid().to_numpy(zero_copy_only=False), codes, -1)
    moments = pc.fill_null(asked, _FIRST_MOMENT).to_numpy(zero_copy_only=False)
    return [version[2] for version in versions], valid_at(keys, times, codes.astype(np.int64), moments)
