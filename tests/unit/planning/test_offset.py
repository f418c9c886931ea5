from __future__ import annotations

import json
from typing import Any

import pytest

from watermark_source.errors import OffsetError
from watermark_source.planning.announced import AnnouncedFrom
from watermark_source.planning.disorder import BUCKETS, Learned
from watermark_source.planning.offset import OF_LINEAGE, OF_REPLICAS, OF_SNAPSHOTS, OffsetCodec
from watermark_source.planning.split import Split
from watermark_source.planning.state import (
    Epoch,
    GroupState,
    Origin,
    Returning,
    SnapshotState,
    SourceState,
    SplitState,
    SplitStatus,
)
from watermark_source.planning.watermark import MAX, Millis

CODEC = OffsetCodec(source="aligned-kafka", name="orders")
GOOD: dict[str, Any] = {"name": "orders", "run": 0, "source": "aligned-kafka", "splits": {}, "v": 1}


def test_the_layout_is_as_documented() -> None:
    state = SourceState(
        splits={
            Split("orders", 10): SplitState(5, 5),
            Split("orders", 2): SplitState(50, 20, Millis(1_005)),
            Split("orders", 0): SplitState(7, 7, Millis(990), SplitStatus.IDLE, Millis(2_000)),
            Split("a", 0): SplitState(7, 7, None, SplitStatus.ACTIVE, Millis(2_500)),
            Split("b", 0): SplitState(7, 7, None, SplitStatus.PAUSED),
            Split("c", 0): SplitState(7, 7, step=1_500),
            Split("d", 0): SplitState(7, 7, returning=Returning.READ, epoch=Epoch(3, 2)),
        },
        watermark=Millis(1_000),
        ids={"d": "Yk2", "a": "Xw1"},
        group=GroupState(limit=Millis(1_100)),
        future_cap=Millis(9_000),
        run=3,
    )
    assert json.dumps(CODEC.encode(state)) == (
        '{"cap": 9000, "epochs": {"d": {"0": [3, 2]}}, "ids": {"a": "Xw1", "d": "Yk2"}, "limit": 1100, '
        '"name": "orders", "run": 3, "since": 2000, "source": "aligned-kafka", '
        '"splits": {"a": {"0": [7, 0, null, "a", 500]}, "b": {"0": [7, 0, null, "p"]}, '
        '"c": {"0": [7, 0, null, "a", null, 1500]}, '
        '"d": {"0": [7, 0, null, "a", null, null, 1]}, '
        '"orders": {"0": [7, 0, -10, "i", 0], "10": [5, 0], "2": [50, 30, 5]}}, "v": 1, "wm": 1000}'
    )


def test_what_was_written_is_what_is_read() -> None:
    state = SourceState(
        splits={
            Split("orders", 0): SplitState(
                7, 5, Millis(990), SplitStatus.IDLE, Millis(2_000), step=3, epoch=Epoch(0, 6)
            ),
            Split("orders", 2**31 - 1): SplitState(7, 7, None, SplitStatus.PAUSED, epoch=Epoch(0, 6)),
        },
        watermark=Millis(1_000),
        use_processing_time=True,
        future_cap=Millis(9_000),
        snapshots=SnapshotState({"orders": ((5, "a"), None)}, frozenset({"users"}), {"users": 2}),
        group=GroupState("5b1d", Millis(1_100), held=3),
        origin=Origin("here", 7, "a:1-3"),
        ended=True,
        event_time="eventTimeColumn = value:$.at",
        ids={"orders": "Yk2"},
        run=4,
    )
    assert CODEC.decode(json.loads(json.dumps(CODEC.encode(state)))) == state


def test_processing_time_is_a_flag_that_is_there_or_not() -> None:
    assert CODEC.encode(SourceState(use_processing_time=True))["pt"] is True
    assert "pt" not in CODEC.encode(SourceState())
    assert CODEC.decode({**GOOD, "pt": True}).use_processing_time


@pytest.mark.parametrize("version", [None, 0, True, 1.0, "1", [1]])
def test_a_version_that_is_none_is_refused(version: object) -> None:
    with pytest.raises(OffsetError, match=r'"v" is'):
        CODEC.decode({**GOOD, "v": version})


@pytest.mark.parametrize("announced", [
    AnnouncedFrom(3, "L", ("a", "b")), AnnouncedFrom(0, None, ()), AnnouncedFrom(3, "L", ("a",), {"a": ("q1", "q2")}),
    AnnouncedFrom(3, "L", (), left_out=True), AnnouncedFrom(3, "L", (), name="t.watermarks"),
])  # fmt: skip
def test_where_announcements_are_read_again_is_in_the_offset(announced: AnnouncedFrom) -> None:
    state = SourceState(announced=announced)
    encoded = json.loads(json.dumps(CODEC.encode(state)))
    assert CODEC.decode(encoded) == state
    assert "announced" not in CODEC.encode(SourceState())


def test_a_newer_version_is_asked_to_upgrade() -> None:
    with pytest.raises(OffsetError, match=r"version 2.*Upgrade"):
        CODEC.decode({**GOOD, "v": 2})


@pytest.mark.parametrize(
    ("changes", "logged"),
    [
        ({"source": "mysql-cdc-wm"}, "another source: its source is 'mysql-cdc-wm', this query's is 'aligned-kafka'"),
        ({"name": "payments"}, "another source: its name is 'payments', this query's is 'orders'"),
        ({"extra": 1, "more": 2}, "unknown.*extra.*more"),
        ({"pt": False}, '"pt" is False'),
        ({"pt": 1}, '"pt" is 1'),
        ({"wm": 1.5}, '"wm" is 1.5'),
        ({"wm": True}, '"wm" is True'),
        ({"cap": MAX + 1}, '"cap" is 9223372036854775808'),
        ({"limit": "5"}, "\"limit\" is '5'"),
        ({"since": None}, '"since" is None'),
        ({"run": -1}, '"run" is -1'),
        ({"splits": [1]}, r'"splits" is \[1\]'),
        ({"time": 5}, '"time" is 5, expected a text or no such key'),
        ({"time": ""}, '"time" is'),
        ({"splits": {"t": 5}}, "the splits of 't' are 5"),
        ({"splits": {"t": {"-1": [0, 0]}}}, "split number '-1'"),
        ({"splits": {"t": {"07": [0, 0]}}}, "split number '07'"),
        ({"splits": {"t": {"٣": [0, 0]}}}, "split number"),
        ({"splits": {"t": {"²": [0, 0]}}}, "split number"),
        ({"splits": {"t": {"": [0, 0]}}}, "split number ''"),
        ({"splits": {"t": {"2147483648": [0, 0]}}}, "split number"),
        ({"splits": {"t": {"9" * 5_000: [0, 0]}}}, "split number"),
        ({"splits": {"t": {"0": [0]}}}, r"split t-0 is \[0\]"),
        ({"splits": {"t": {"0": [0, 0, None, "a", 5, 6, 1, 8]}}}, "2 to 7 fields"),
        ({"splits": {"t": {"0": [0, 0, None, "a", 5, 0]}}}, "step of t-0 is 0"),
        ({"splits": {"t": {"0": [0, 0, None, "a", 5, 6, True]}}}, "whether t-0 is returning is True"),
        ({"splits": {"t": {"0": [0, 0, None, "a", 5, 6, 3]}}}, "whether t-0 is returning is 3"),
        ({"splits": {"t": {"0": "00"}}}, "split t-0 is '00'"),
        ({"splits": {"t": {"0": [0, 0, 0, "x"]}}}, "status 'x'"),
        ({"splits": {"t": {"0": [0, 0, 0, ["a"]]}}}, "status"),
        ({"splits": {"t": {"0": [-1, 0]}}}, "position of t-0 is -1"),
        ({"splits": {"t": {"0": [3, 4]}}}, "planned size of t-0 is 4, expected a whole number from 0 to 3"),
        ({"splits": {"t": {"0": [3, 3, "x"]}}}, "watermark of t-0 is 'x'"),
        ({"wm": MAX, "splits": {"t": {"0": [3, 3, 1]}}}, "watermark of t-0 is 1"),
        ({"splits": {"t": {"0": [3, 3, 1, "i", {}]}}}, "moment of t-0"),
        ({"splits": {"t" * 5_000: {"0": [-1, 0]}}}, "position of ttt"),
        ({"ended": False}, '"ended" is False'),
        ({"announced": 5}, '"announced" is 5'),
        ({"announced": {"at": 1}}, "an object with at, log, name, writers, former and left_out"),
        ({"announced": {"at": -1, "writers": []}}, '"announced" at is -1'),
        ({"announced": {"at": 1, "writers": [""]}}, "a list of names"),
        ({"announced": {"at": 1, "writers": [], "left_out": 1}}, "left_out 1, expected true or no such key"),
        ({"announced": {"at": 1, "writers": [], "log": ""}}, "a log '', expected a text or no such key"),
        ({"announced": {"at": 1, "writers": [], "name": 5}}, "a name 5, expected a text or no such key"),
        ({"announced": {"at": 1, "writers": ["a"], "former": {"a": "q"}}}, "lists of queries by writer"),
        ({"announced": {"at": 1, "writers": [], "more": 2}}, "with at, log, name, writers, former and left_out"),
        ({"held": -1}, '"held" is -1'),
        ({"member": ""}, "\"member\" is ''"),
        ({"member": 5}, '"member" is 5'),
        *[
            (
                {"splits": {"t": {"0": [7, 0]}}, "epochs": epochs},
                '"epochs"',
            )
            for epochs in (
                5,
                {"t": 5},
                {"t": {"0": 5}},
                {"t": {"0": [1]}},
                {"t": {"0": [-1, 0]}},
                {"t": {"0": [1, 7]}},
                {"t": {"1": [1, 0]}},
                {"x": {"0": [1, 0]}},
                {"t": {"0": [True, 0]}},
            )
        ],
        *[
            ({"splits": {"t": {"0": [7, 0]}}, "ids": ids}, '"ids" is .*, expected an id for some logs')
            for ids in (5, {"x": "a"}, {"t": ""}, {"t": 5})
        ],
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], logged: str) -> None:
    with pytest.raises(OffsetError, match=logged) as caught:
        CODEC.decode({**GOOD, **changes})
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "learned",
    [
        5,
        {},
        {"bound": -1},
        {"bound": True},
        {"bound": 0, "more": 1},
        {"bound": 0, "recent": {}},
        {"bound": 0, "recent": [1]},
        {"bound": 0, "recent": [1, 0]},
        {"bound": 0, "recent": [1, 1, 1, 1]},
        {"bound": 0, "earlier": [-1, 1]},
        {"bound": 0, "earlier": [BUCKETS, 1]},
        {"bound": 0, "behind": 5},
        {"bound": 0, "behind": {5: {}}},
        {"bound": 0, "behind": {"t": 5}},
        {"bound": 0, "behind": {"t": {"1": 5}}},
        {"bound": 0, "behind": {"t": {"0": 0.5}}},
        {"bound": 0, "behind": {"t": {"0": MAX}}},
    ],
)
def test_what_was_never_learned_is_refused(learned: object) -> None:
    with pytest.raises(OffsetError, match='"learned"'):
        CODEC.decode({**GOOD, "wm": 1, "splits": {"t": {"0": [3, 3, 0]}}, "learned": learned})


def test_what_was_learned_names_only_splits_that_differ() -> None:
    state = SourceState(
        splits={
            Split("t", 0): SplitState(7, 7, Millis(990), highest=Millis(1_491)),
            Split("t", 1): SplitState(7, 7, highest=Millis(5)),
            Split("t", 2): SplitState(7, 7, Millis(990)),
            Split("t", 3): SplitState(7, 7),
            Split("t", 4): SplitState(7, 7, Millis(990), highest=Millis(1_400)),
            Split("t", 5): SplitState(7, 7, Millis(MAX - 501), highest=MAX),
            Split("t", 6): SplitState(7, 7, Millis(MAX - 500)),
        },
        learned=Learned(500, ((0, 2), (3, 4)), ((BUCKETS - 1, 1),)),
    )
    offset = CODEC.encode(state)
    assert json.dumps(offset["learned"]) == (
        '{"behind": {"t": {"1": 5, "2": null, "4": 410}}, "bound": 500, '
        f'"earlier": [{BUCKETS - 1}, 1], "recent": [0, 2, 3, 4]}}'
    )
    assert CODEC.decode(offset) == state
    nothing = SourceState(splits={Split("t", 0): SplitState(7, 7)}, learned=Learned(0))
    assert CODEC.encode(nothing)["learned"] == {"bound": 0}
    assert CODEC.decode(CODEC.encode(nothing)) == nothing


@pytest.mark.parametrize("foreign", [{}, {"logOffset": 3}, {"0": {"value": 5, "runTimeMs": 7}}])
def test_the_offset_of_a_source_of_another_kind_is_named_as_such(foreign: dict[str, Any]) -> None:
    with pytest.raises(OffsetError, match=r"the checkpoint belongs to another source: its offset is \{.*aligned-kafka"):
        CODEC.decode(foreign)


@pytest.mark.parametrize(
    ("keys", "never"),
    [
        ({"snapshot": {"t": [[1]]}}, OF_SNAPSHOTS),
        ({"complete": []}, OF_SNAPSHOTS),
        ({"forgotten": {"t": 1}}, OF_SNAPSHOTS),
        ({"done": "a:1-3"}, OF_REPLICAS),
        ({"system": "a"}, OF_REPLICAS),
        ({"ids": {"t": "a"}}, OF_LINEAGE),
    ],
)
def test_what_a_source_never_writes_is_refused(keys: dict[str, Any], never: frozenset[str]) -> None:
    offset = {**GOOD, "splits": {"t": {"0": [7, 0]}}, **keys}
    CODEC.decode(offset)
    with pytest.raises(OffsetError, match=f"unknown.*{next(iter(keys))}"):
        OffsetCodec("aligned-kafka", "orders", never).decode(offset)


@pytest.mark.parametrize("key", sorted(GOOD.keys() - {"v"}))
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(OffsetError, match=f"missing.*{key}"):
        CODEC.decode({k: v for k, v in GOOD.items() if k != key})


def test_splits_of_a_log_with_a_name_that_is_no_text_are_refused() -> None:
    with pytest.raises(OffsetError, match="the splits of 5"):
        CODEC.decode({**GOOD, "splits": {5: {}}})


def test_a_value_too_deep_to_be_shown_is_refused_all_the_same() -> None:
    nest: Any = 1
    for _ in range(100_000):
        nest = [nest]
    with pytest.raises(OffsetError, match='"limit" is a deep nest'):
        CODEC.decode({**GOOD, "limit": nest})


@pytest.mark.parametrize("offset", [None, 5, "x", [GOOD]])
def test_what_is_no_object_is_refused(offset: object) -> None:
    with pytest.raises(OffsetError, match="expected an object"):
        CODEC.decode(offset)


def test_an_origin_that_says_nothing_is_none() -> None:
    found = CODEC.decode({**GOOD, "shift": 0})
    assert found == CODEC.decode(CODEC.encode(found)) == CODEC.decode(GOOD)
