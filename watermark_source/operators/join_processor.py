"""TemporalJoinProcessor: the stateful operator of ``temporal_join``, for one bucket of keys."""

from __future__ import annotations

import logging
import pickle
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from watermark_source.errors import UsageError
from watermark_source.operators.changes import INNER, JOIN
from watermark_source.operators.packs import IS_PROBE, ROWS
from watermark_source.operators.state_calls import VALUE, KeyValues, value_of
from watermark_source.operators.waiting_rows import (
    Buffer,
    RowLayout,
    Waiting,
    from_bytes,
    gathered,
    piece_state,
    to_bytes,
    watermark_past,
)
from watermark_source.words import NO_WORDS

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)

Integers = npt.NDArray[np.int64]
Row = tuple[Any, ...]

PROBE_FIRST = ("key", "time")
"""Leading columns of a probe pack. The probe's own columns follow."""
BUILD_FIRST = ("key", "time", "gone")
"""Leading columns of a build pack. The columns that order changes of one time follow, then the build's own columns."""


@dataclass(frozen=True, slots=True)
class Deletions:
    """The times of build rows that delete their key."""

    of_changes: bool = True
    """Whether event time is the time of each change: an insert and a delete may then have one time."""
    dated_by: str | None = None
    """The column with the time of a deletion, of a source that dates it by the deleted row."""
    condition: str = "_change_type IN ('delete')"
    """Which rows delete their key, in SQL."""
    undated: str = NO_WORDS.undated_delete
    """What to write where they have no time."""

    def is_refused(self, version: Version, watermark: int) -> bool:
        """Return whether a deletion that has a version's own time is treated as one that is dated by that row.

        Where the source does not say, one that comes after the watermark has passed it: what is deleted within a unit
        of time is deleted at once.

        Args:
            version: the version that would end at its beginning.
            watermark: that of the batch, in microseconds.
        """
        return self.dated_by is not None or (not self.of_changes and version.time < watermark)

    @property
    def remedy(self) -> str:
        """The line that gives deletions the time of their change.

        It is later than the beginning of the deleted row also where that is in the future, or changes are dated in
        seconds.
        """
        time = self.dated_by or "the_time_of_the_change"
        dated = f"IF({self.condition}, greatest({time}, event_time + INTERVAL 1 MICROSECOND), event_time)"
        return f'build.withColumn("event_time", expr("{dated}"))'


@dataclass(frozen=True, slots=True)
class JoinLayout:
    """The columns of one join, and what its state depends on. Picklable."""

    processing_time: bool
    inner: bool
    sequence: int
    """How many columns order changes of one key and time."""
    probe: pa.Schema
    """The columns of probe packs: ``PROBE_FIRST``, then the probe's own columns."""
    changes: pa.Schema
    """The columns of build packs: ``BUILD_FIRST``, those that order changes of one time, then ``build``."""
    build: pa.Schema
    """The columns that the join adds to the probe's."""
    described: str
    """A text of everything the state depends on: a join can resume only from state with an equal text."""
    waits: bool = True
    """Whether probe rows wait for a watermark."""
    deletions: Deletions = Deletions()

    @property
    def name(self) -> str:
        """The join's name in Spark's plan."""
        kind = "processing time" if self.processing_time else "event time"
        parts = [kind, *(() if self.waits else ("without waiting",)), *((INNER,) if self.inner else ())]
        return f"{JOIN}{', '.join(parts)}]"

    def confirm(self, described: str) -> None:
        """Raise ``UsageError`` if another join has written the state."""
        if described != self.described:
            raise UsageError(
                f"{self.name}: the state in the checkpoint is of another join. Seen: {described}. Now: "
                f"{self.described}. A query's columns, their types, on, the kind of time and buckets cannot change; "
                "start with a new checkpointLocation"
            )

    def check_deletes(self, changes: pa.Table) -> None:
        """Refuse, on event time, changes that delete their key at no time: they would end no version.

        Args:
            changes: columns ``BUILD_FIRST``, then others.

        Raises:
            UsageError: there are such changes.
        """
        _, time, gone = changes.columns[: len(BUILD_FIRST)]
        undated = pc.sum(pc.and_(gone, pc.is_null(time))).as_py()
        if undated:
            raise UsageError(
                f"{self.name}: rows of build that delete their key have no time in build_time ({undated} in one batch) "
                f"and would end no version. {self.deletions.undated}"
            )

    def check_taken_back(
        self, before: Sequence[Version], new: Sequence[Version], after: Sequence[Version], watermark: int
    ) -> None:
        """Refuse a delete with the time of the deleted row, which takes a key's version back.

        Args:
            before: the versions of a key in state.
            new: those that were read now.
            after: both merged.
            watermark: that of the batch, in microseconds.

        Raises:
            UsageError: a version would count as if it had never been there.
        """
        # Without an order a deletion comes before what has its time, as if it were of another row.
        is_unordered = self.deletions.dated_by is not None and not self.sequence
        ends = (*after, *new) if is_unordered else after
        ended = {v.time for v in ends if v.row is None and self.deletions.is_refused(v, watermark)}
        known = before if self.deletions.dated_by is None else (*before, *new)
        if any(version.time in ended for version in known if version.row is not None):
            raise UsageError(
                f"{self.name}: a row of build was deleted, and the delete has the time at which that row began: the "
                "row would count as if it had never been there. Give deletes the time of their change, before "
                f"follow_watermark: {self.deletions.remedy}, for which build needs the column of that time. Or let the "
                "source's event time be the time of each change"
            )
        if not self.deletions.of_changes:
            if _begins_and_ends((*before, *new), (*after, *new)):
                _warn_of_one_time(self.name, self.deletions.remedy)
        elif not self.sequence and _begins_and_ends(new, new):
            _warn_of_no_order(self.name)


def _begins_and_ends(begun: Iterable[Version], ended: Iterable[Version]) -> bool:
    """Return whether a version begins at a time at which one ends."""
    return not {v.time for v in begun if v.row is not None}.isdisjoint(v.time for v in ended if v.row is None)


@cache
def _warn_of_no_order(name: str) -> None:
    _log.warning(
        "%s: build has a row and a deletion of one key with one time, and no column orders them: the deletion counts "
        'as the earlier one, and the row stays. For a topic write sequence="offset", and keep that column in build',
        name,
    )


@cache
def _warn_of_one_time(name: str, remedy: str) -> None:
    _log.warning(
        "%s: a row of build was deleted with the time at which it began, and its event time is a column or a member of "
        "which nothing says whether it is that of each change. If a deletion has the time of the row that it deletes, "
        "such a row has no version, or is never deleted: give deletes the time of their change, before "
        "follow_watermark: %s. Ignore this if rows are deleted within the unit of time in which they begin",
        name, remedy,
    )  # fmt: skip


_BUCKET_STATE = StructType().add("layout", "string").add("waiting", "binary").add("prune", "long")
_FIRST_MOMENT = -(2**63)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A bucket's state beside its versions."""

    waiting: Waiting = field(default_factory=Waiting)
    """The index of waiting probe rows."""
    prune: int | None = None
    """The watermark, in milliseconds, at which unneeded versions are dropped; ``None`` if there are none."""

    @property
    def timers(self) -> set[int | None]:
        """The watermarks, in milliseconds, at which the bucket needs a timer."""
        return {self.waiting.alarm, self.prune}


class TemporalJoinProcessor(StatefulProcessor):
    """Joins probe rows with versions of build rows, for ``transformWithStateInPandas``; keyed by the bucket.

    A bucket's state holds the versions of each key (on processing time only the latest row), the probe rows that wait
    for the watermark, the keys with versions that will become unneeded, and the time of the next pruning.
    """

    def __init__(self, layout: JoinLayout) -> None:
        self._layout = layout
        self._rows = RowLayout(layout.probe, PROBE_FIRST.index("time"))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._bucket = handle.getValueState("bucket", _BUCKET_STATE)
        self._versions = KeyValues(handle, "versions")
        self._pieces = piece_state(handle, "waiting")
        self._stale = handle.getListState("stale", VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Apply the build rows, then join the probe rows that the watermark has passed; store the others."""
        probe: list[bytes] = []
        build: list[bytes] = []
        for frame in rows:
            for is_probe, pack in zip(frame[IS_PROBE].tolist(), frame[ROWS].tolist(), strict=True):
                (probe if is_probe else build).append(pack)
        before = self._read()
        after = before or _Bucket()
        if build:
            changes = pa.Table.from_batches(from_bytes(pack, self._layout.changes) for pack in build)
            if self._layout.processing_time:
                self._set_latest(changes)
            else:
                after = replace(
                    after, prune=self._add_versions(changes, after.prune, timerValues.getCurrentWatermarkInMs())
                )
        came = (from_bytes(pack, self._layout.probe) for pack in probe)
        if probe and not self._layout.waits:
            for arrived in gathered(came):
                yield from self._joined(arrived)
        elif probe:
            buffer = Buffer(self._rows, self._pieces, after.waiting)
            for ready in buffer.take_in(came, timerValues.getCurrentWatermarkInMs()):
                yield from self._joined(ready)
            after = replace(after, waiting=buffer.waiting)
        self._write(before, after)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Join the probe rows that waited for this watermark, then drop versions that no later row can match."""
        watermark = timerValues.getCurrentWatermarkInMs()
        before = self._read()
        after = before or _Bucket()
        buffer = Buffer(self._rows, self._pieces, after.waiting)
        for ready in buffer.release(watermark * 1_000):
            yield from self._joined(ready)
        after = replace(after, waiting=buffer.waiting)
        if after.prune is not None and after.prune <= watermark:
            after = replace(after, prune=self._prune(watermark * 1_000))
        self._write(before, after)

    def close(self) -> None:
        """Close nothing: Spark closes the state."""

    # The bucket -----------------------------------------------------------------------------------------------------

    def _read(self) -> _Bucket | None:
        """Return the bucket's state; ``None`` for a bucket without one."""
        state = value_of(self._bucket)
        if state is None:
            return None
        described, waiting, prune = state
        self._layout.confirm(described)
        return _Bucket(Waiting.decode(bytes(waiting)), prune)

    def _write(self, before: _Bucket | None, after: _Bucket) -> None:
        """Write the bucket's state and register its new timers. A timer earlier than needed does no harm."""
        if after == before:
            return
        for timer in after.timers - (before or _Bucket()).timers:
            if timer is not None:
                self._handle.registerTimer(timer)
        self._bucket.update((self._layout.described, after.waiting.encode(), after.prune))

    # Probe rows -----------------------------------------------------------------------------------------------------

    def _joined(self, rows: pa.RecordBatch) -> Iterator[pd.DataFrame]:
        keys = rows.column(0).dictionary_encode()
        codes = pc.fill_null(keys.indices, -1).to_numpy(zero_copy_only=False)
        values = self._versions.read(keys.dictionary.to_pylist())
        if self._layout.processing_time:
            candidates, matches = values, codes.astype(np.int64)
        else:
            candidates, matches = _as_of(values, codes, rows.column(1))
        has_row = np.array([value is not None for value in candidates], dtype=np.bool_)
        if len(has_row):
            matches = np.where((matches >= 0) & has_row[matches], matches, -1)
        own = rows.select(list(range(len(PROBE_FIRST), rows.num_columns)))
        if self._layout.inner:
            is_matched = matches >= 0
            own, matches = own.filter(pa.array(is_matched)), matches[is_matched]
        if not own.num_rows:
            return
        places = pa.array(matches, mask=matches < 0)
        for added, column in zip(self._layout.build, to_columns(candidates, self._layout.build.types), strict=True):
            own = own.append_column(added, column.take(places))
        # Spark's stateful operators import pandas; the driver does not need it.
        import pandas as pd  # noqa: PLC0415 - see above

        yield pd.DataFrame({ROWS: [to_bytes(own)]})

    # Versions -------------------------------------------------------------------------------------------------------

    def _sorted(self, changes: pa.Table) -> tuple[list[bytes], pa.Table]:
        """Return the changes sorted by key, time and sequence columns, with deletions first among equals; and keys."""
        first = len(BUILD_FIRST)
        columns = dict(zip(BUILD_FIRST, changes.columns, strict=False))
        sort_keys = [("key", "ascending"), ("time", "ascending")]
        columns["time"] = pc.fill_null(columns["time"], _FIRST_MOMENT)
        for number, column in enumerate(changes.columns[first : first + self._layout.sequence]):
            # Nulls sort first.
            columns |= {f"has {number}": column.is_valid(), f"sequence {number}": column}
            sort_keys += [(f"has {number}", "ascending"), (f"sequence {number}", "ascending")]
        order = pc.sort_indices(pa.table(columns), sort_keys=[*sort_keys, ("gone", "descending")])
        changes = changes.take(order)
        return changes.column(0).to_pylist(), changes

    def _rows_or_none(self, changes: pa.Table) -> list[Any]:
        """Return the row of each change, ``None`` for a deletion."""
        first = len(BUILD_FIRST) + self._layout.sequence
        rows = to_rows(changes.columns[first:], changes.num_rows)
        gone = changes.column(2).to_pylist()
        return [None if deleted else row for row, deleted in zip(rows, gone, strict=True)]

    def _set_latest(self, changes: pa.Table) -> None:
        keys, changes = self._sorted(changes)
        last = [n for n, (key, following) in enumerate(zip(keys, [*keys[1:], None], strict=True)) if key != following]
        rows = self._rows_or_none(changes.take(pa.array(last)))
        latest = dict(zip((keys[n] for n in last), rows, strict=True))
        self._versions.write({key: row for key, row in latest.items() if row is not None})
        self._versions.remove(key for key, row in latest.items() if row is None)

    def _add_versions(self, changes: pa.Table, prune: int | None, watermark: int) -> int | None:
        """Add versions, and return the watermark of the next pruning; both are milliseconds.

        It drops no version: if the probe side comes from an operator that emits rows after the watermark, rows of the
        same batch still match versions that the watermark has passed.
        """
        self._layout.check_deletes(changes)
        keys, changes = self._sorted(changes)
        times = pc.fill_null(changes.column(1), _FIRST_MOMENT).to_pylist()
        new: dict[bytes, list[Version]] = {}
        for key, time, row in zip(keys, times, self._rows_or_none(changes), strict=True):
            new.setdefault(key, []).append(Version(time, row))
        stored = self._versions.read(list(new))
        after: dict[bytes, list[Version]] = {}
        for (key, added), found in zip(new.items(), stored, strict=True):
            before = [Version(*version) for version in found or ()]
            after[key] = merged(before, added)
            self._layout.check_taken_back(before, added, after[key], watermark * 1_000)
        following = self._write_needed(after, _FIRST_MOMENT)
        return min((each for each in (prune, following) if each is not None), default=None)

    def _write_needed(self, versions: dict[bytes, list[Version]], bound: int) -> int | None:
        """Write the versions needed after ``bound``, and note keys with versions to prune; return when to prune them.

        At that watermark half of the keys have versions to drop. So a key is read twice on average at most, and a
        version far in the future does not delay the others.
        """
        needed = {key: needed_after(of_key, bound) for key, of_key in versions.items()}
        self._versions.write({key: [tuple(version) for version in kept] for key, kept in needed.items() if kept})
        self._versions.remove(key for key, kept in needed.items() if not kept)
        stale = {
            key: kept[-1].time for key, kept in needed.items() if len(kept) > 1 or (kept and kept[-1].row is None)
        }  # fmt: skip
        if not stale:
            return None
        self._stale.appendValue((pickle.dumps(list(stale)),))
        return watermark_past(sorted(stale.values())[(len(stale) - 1) // 2])

    def _prune(self, bound: int) -> int | None:
        """Drop versions not needed after ``bound``; return the watermark of the next pruning."""
        keys = {key for value in self._stale.get() for key in pickle.loads(value[0])}  # noqa: S301 - written above
        self._stale.clear()
        ordered = sorted(keys)
        stored = zip(ordered, self._versions.read(ordered), strict=True)
        return self._write_needed({key: [Version(*v) for v in versions] for key, versions in stored if versions}, bound)


def _as_of(values: Sequence[Any], codes: np.ndarray, probe_times: pa.Array) -> tuple[list[Any], np.ndarray]:
    """Return all rows of the keys' versions, and for each probe row the index of its match among them, or -1."""
    versions = [(code, *version) for code, of_key in enumerate(values) for version in of_key or ()]
    keys = np.array([version[0] for version in versions], dtype=np.int64)
    times = np.array([version[1] for version in versions], dtype=np.int64)
    # A probe row without a time matches nothing.
    codes = np.where(probe_times.is_valid().to_numpy(zero_copy_only=False), codes, -1)
    moments = pc.fill_null(probe_times, _FIRST_MOMENT).to_numpy(zero_copy_only=False)
    return [version[2] for version in versions], valid_at(keys, times, codes.astype(np.int64), moments)


# Versions of rows. Times are microseconds. A version is valid from its time until the next version of its key, and a
# deletion is a version without a row. Pure.


class Version(NamedTuple):
    """A key's row from a time on."""

    time: int
    row: Any
    """``None`` for a deletion."""


def valid_at(keys: Integers, times: Integers, probe_keys: Integers, probe_times: Integers) -> Integers:
    """Return, for each probe row, the index of the last version of its key at or before its time; -1 without one.

    Args:
        keys: the versions' keys, as numbers.
        times: the times from which versions are valid. Of equal key and time the version with the higher index counts.
        probe_keys: the probe rows' keys.
        probe_times: the probe rows' times.
    """
    count = len(keys)
    all_keys, all_times = np.concatenate([keys, probe_keys]), np.concatenate([times, probe_times])
    # The sort is stable and versions come first, so a version of the probe row's own time sorts before the probe row.
    order = np.lexsort((all_times, all_keys))
    versions = np.where(order < count, np.arange(len(order)), -1)
    last_version = np.maximum.accumulate(versions)
    probes = np.flatnonzero(order >= count)
    before = last_version[probes]
    matches = np.full(len(probe_keys), -1, dtype=np.int64)
    of_same_key = (before >= 0) & (all_keys[order[before]] == all_keys[order[probes]])
    matches[order[probes[of_same_key]] - count] = order[before[of_same_key]]
    return matches


def merged(stored: Sequence[Version], new: Sequence[Version]) -> list[Version]:
    """Merge the versions of one key in order of time. Of versions with equal times the last one replaces the others.

    Both arguments are sorted by time; in ``new`` versions with equal times are in order of arrival.
    """
    in_order = sorted([*stored, *new], key=attrgetter("time"))  # stable
    return list({version.time: version for version in in_order}.values())


def needed_after(versions: Sequence[Version], moment: int) -> Sequence[Version]:
    """Return the versions of one key that probe rows later than ``moment`` can match.

    These are all later versions, and the newest at or before the moment. A deletion there is left out: a key without
    versions has no row either.
    """
    newest = bisect_right([version.time for version in versions], moment) - 1
    if newest < 0:
        return versions
    return versions[newest + (versions[newest].row is None) :]


# Rows in state: tuples of plain Python values. Timestamps, dates and durations are integers, which are exact. Strings
# are bytes, because Spark's need not be UTF-8. The same holds within structs, arrays and maps.


_PLAIN = {
    pa.types.is_timestamp: pa.int64(),
    pa.types.is_duration: pa.int64(),
    pa.types.is_time64: pa.int64(),
    pa.types.is_date32: pa.int32(),
    pa.types.is_string: pa.binary(),
}


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type that represents a type's values in state."""
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_plain(member.type)) for member in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_plain(key.type)), item.with_type(_plain(item.type)))
    return next((plain for is_it, plain in _PLAIN.items() if is_it(kind)), kind)


def to_rows(columns: Sequence[pa.ChunkedArray], count: int) -> list[Row]:
    """Return the rows of zero or more columns."""
    if not columns:
        return [()] * count
    return list(zip(*(column.cast(_plain(column.type)).to_pylist() for column in columns), strict=True))


def to_columns(rows: Sequence[Row | None], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns of rows; a row that is ``None`` is null in all of them."""
    nulls = (None,) * len(kinds)
    cells = list(zip(*(nulls if row is None else row for row in rows), strict=True)) or [()] * len(kinds)
    return [
        # An unsafe cast makes a string of any bytes.
        pa.array(values, _plain(kind)).cast(kind, safe=False)
        for values, kind in zip(cells, kinds, strict=True)
    ]
