"""Random schedules of rows, changes and watermarks through the join's processor: each answer right, no state left over.

Spark's own tester stands in for its state: what differs on a real state store, tests/spark shows.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.tws_tester import TwsTester

from watermark_source.errors import UsageError
from watermark_source.operators.join_processor import JoinLayout, TemporalJoinProcessor
from watermark_source.operators.packs import IS_PROBE, ROWS
from watermark_source.operators.waiting_rows import from_bytes, to_bytes

BUCKET = 5
ASKED = pa.schema([pa.field("key", pa.binary()), pa.field("time", pa.int64()), pa.field("number", pa.int64())])
COLUMNS = pa.schema([pa.field("user", pa.int64()), pa.field("at", pa.timestamp("us", tz="UTC"))])
CHANGED = pa.schema([*list(ASKED)[:2], ("gone", pa.bool_()), ("sequence", pa.int64()), *COLUMNS])
ANSWERED = pa.schema([ASKED.field("number"), *COLUMNS])
HALF = 500
"""Microseconds: times fall between milliseconds too."""
KEYS = st.sampled_from([b"a", b"b", b"c"])
AHEAD = st.integers(1, 12)
STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, AHEAD, st.booleans()), max_size=5),
        st.lists(st.tuples(st.one_of(st.none(), KEYS), AHEAD), max_size=5),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=8,
)


Pack = dict[str, Any]


def driven(layout: JoinLayout) -> TwsTester:
    # The join has no late rows: to Spark its packs have no time.
    join = TwsTester(TemporalJoinProcessor(layout), timeMode="eventTime", eventTimeExtractor=lambda _: 2**62)
    join._usingPandas = True
    return join


def take_in(join: TwsTester, packs: list[Pack]) -> pd.DataFrame:
    return join.testInPandas(BUCKET, pd.DataFrame(packs))


def batch(join: TwsTester, watermark: int, rows: list[Pack]) -> list[tuple[int, int | None]]:
    """Do what Spark does in a batch, in its order: rows see the new watermark before timers do."""
    join._currentWatermarkMs = watermark
    join.handle.setWatermark(watermark)
    came = answers(take_in(join, rows)) if rows else []
    return came + answers(join._handleExpiredTimers())


def layout(*, processing_time: bool = False, inner: bool = False, described: str = "a join") -> JoinLayout:
    return JoinLayout(processing_time, inner, 1, ASKED, CHANGED, COLUMNS, described)


def probe_pack(rows: Sequence[tuple[bytes | None, int | None, int]]) -> Pack:
    """Of rows: key, time, number."""
    return pack(rows, ASKED, is_probe=True)


def build_pack(rows: Sequence[tuple[bytes, int | None, bool, int, int]]) -> Pack:
    """Of rows: key, time, gone, sequence, user."""
    return pack([(*row, 1_000 * row[4]) for row in rows], CHANGED, is_probe=False)


def pack(rows: Sequence[Any], schema: pa.Schema, *, is_probe: bool) -> Pack:
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(schema.types)]
    return {IS_PROBE: is_probe, ROWS: to_bytes(pa.RecordBatch.from_arrays(columns, schema=schema))}


def answers(packs: pd.DataFrame) -> list[tuple[int, int | None]]:
    """Return number and user of what came out."""
    found: list[tuple[int, int | None]] = []
    for pack in [] if packs.empty else packs[ROWS].tolist():
        table = from_bytes(pack, ANSWERED)
        micros = table.column("at").cast(pa.int64()).to_pylist()
        users = table.column("user").to_pylist()
        assert micros == [None if user is None else 1_000 * user for user in users]
        found += zip(table.column("number").to_pylist(), users, strict=True)
    return found


@given(STEPS, st.booleans(), st.sampled_from([0, 1]), st.booleans())
def test_on_event_time_each_row_gets_the_version_of_its_time_and_the_past_is_forgotten(
    steps: list[Any], inner: bool, watermark: int, waited: bool
) -> None:
    """Also before there is a watermark, and where probe rows have waited for it in another operator."""
    join = driven(layout(inner=inner))
    number, came, before = 0, [], 0
    questions: list[tuple[int, bytes | None, int]] = []
    versions: list[tuple[bytes, int, int, int | None]] = []
    for changes, asked, step in steps:
        rows = []
        # While there is no watermark times are of 1970, and before.
        now = watermark * 1_000 if watermark else -6 * HALF
        if changes:
            reported = [
                (key, now + ahead * HALF, gone, number + n, number + n) for n, (key, ahead, gone) in enumerate(changes)
            ]
            # In any order: sequence states which of equal times is the last.
            rows.append(build_pack(reported[::-1]))
            versions += [(key, time, n, None if gone else user) for key, time, gone, n, user in reported]
            number += len(changes)
        if asked:
            first, span = (before, now - before) if waited and watermark else (now, 12 * HALF)
            ask: list[Any] = [
                (key, first + 1 + (ahead * HALF - 1) % span, number + n) for n, (key, ahead) in enumerate(asked)
            ]
            rows.insert(0, probe_pack(ask))
            questions += [(n, key, time) for key, time, n in ask]
            number += len(asked)
        came += batch(join, watermark, rows)
        before = watermark * 1_000
        watermark += step
    watermark -= step
    due = {n for n, _, time in questions if watermark and time <= watermark * 1_000}
    expected = []
    for n, key, time in questions:
        of_key = [version[1:] for version in versions if version[0] == key and version[1] <= time]
        expected.append((n, max(of_key, key=lambda version: version[:2])[2] if of_key else None))
    kept = [(n, user) for n, user in expected if user is not None or not inner]
    assert sorted(came) == [each for each in kept if each[0] in due]
    came += batch(join, 1_000_000, [])
    assert sorted(came) == kept
    left = [pickle.loads(value[0]) for value in join.peekMapState("versions", BUCKET).values()]
    assert all(len(history) == 1 and history[0][1] is not None for history in left)
    assert list(join.peekListState("stale", BUCKET)) == []
    assert join.peekMapState("waiting", BUCKET) == {}


@given(STEPS, st.integers(0, 8))
def test_on_processing_time_each_row_gets_the_latest_row_once_there_is_a_watermark(steps: list[Any], flip: int) -> None:
    join = driven(layout(processing_time=True))
    number, came, expected = 0, [], []
    latest: dict[bytes, int] = {}
    early: list[tuple[int, bytes | None]] = []
    for turn, (changes, asked, _) in enumerate(steps):
        rows = []
        if changes:
            reported = [(key, 7, gone, number + n, number + n) for n, (key, _, gone) in enumerate(changes)]
            rows.append(build_pack(reported[::-1]))
            for key, _, gone, _, user in reported:
                latest.pop(key, None)
                latest |= {} if gone else {key: user}
            number += len(changes)
        if asked:
            ask = [(key, 7, number + n) for n, (key, _) in enumerate(asked)]
            rows.append(probe_pack(ask))
            early += [(n, key) for key, _, n in ask]
            number += len(asked)
        came += batch(join, 1_700_000_000_000 if turn >= flip else 0, rows)
        if turn >= flip:
            expected += [(n, None if key is None else latest.get(key)) for n, key in early]
            early = []
        assert sorted(came) == expected
    assert join.peekMapState("versions", BUCKET).keys() == {(key,) for key in latest}


def test_state_of_another_join_is_refused() -> None:
    join = driven(layout())
    take_in(join, [build_pack([(b"a", 1, False, 1, 1)])])
    join.processor._layout = layout(described="another join")  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"Seen: a join\. Now: another join\. .* new checkpointLocation"):
        take_in(join, [probe_pack([(b"a", 1, 1)])])


def test_a_version_of_a_far_time_holds_up_no_other() -> None:
    join = driven(layout())
    far = 10**15
    batch(join, 1, [build_pack([(b"a", 1_000, False, 0, 1), (b"a", far, False, 1, 2)])])
    for now in range(2, 50):
        batch(join, now, [build_pack([(b"b", now * 1_000 + 1, False, now, now)])])
    kept = {key: pickle.loads(value[0]) for (key,), value in join.peekMapState("versions", BUCKET).items()}
    assert [len(kept[b"a"]), len(kept[b"b"])] == [2, 2]


def test_a_row_without_a_time_finds_nothing() -> None:
    join = driven(layout())
    batch(join, 1, [build_pack([(b"a", None, False, 0, 1)])])
    assert batch(join, 2, [probe_pack([(b"a", None, 1), (b"a", 5, 2)])]) == [(1, None), (2, 1)]


def test_a_watermark_touches_only_the_rows_that_it_has_reached() -> None:
    """However long others wait."""
    join = driven(layout())
    rows = 200_000
    batch(join, 1, [probe_pack([(b"a", 1_000 * (n + 2), n) for n in range(rows)])])
    pieces = join.peekMapState("waiting", BUCKET)
    assert len(pieces) > 10
    came = batch(join, 100, [])
    assert [n for n, _ in came] == list(range(99))
    left = join.peekMapState("waiting", BUCKET)
    assert len(pieces.items() & left.items()) == len(pieces) - 1
