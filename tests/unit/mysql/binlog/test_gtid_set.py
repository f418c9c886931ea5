"""GTID sets do as sets do, and read and write as servers do."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, Source

A, B = "0a000000-0000-0000-0000-00000000000a", "0b000000-0000-0000-0000-00000000000b"
Members = frozenset[tuple[str, str, int]]
MEMBERS = st.frozensets(st.tuples(st.sampled_from([A, B]), st.sampled_from(["", "x", "yy"]), st.integers(1, 12)))


def text_of(members: Members) -> str:
    return ",".join(f"{uuid}:{tag}:{n}" if tag else f"{uuid}:{n}" for uuid, tag, n in members)


def members_of(found: GtidSet) -> Members:
    return frozenset((s.uuid, s.tag, n) for s, rs in found.ranges.items() for a, b in rs for n in range(a, b + 1))


@given(MEMBERS, MEMBERS)
def test_union_difference_and_intersection_are_those_of_sets(one: Members, other: Members) -> None:
    left, right = GtidSet.parse(text_of(one)), GtidSet.parse(text_of(other))
    assert members_of(left) == one
    assert members_of(left | right) == one | other
    assert members_of(left - right) == one - other
    assert members_of(left & right) == one & other
    assert bool(left - right) == bool(one - other)


def test_ranges_that_touch_are_one_and_what_is_taken_out_leaves_the_rest() -> None:
    found = GtidSet.parse(f"{A}:7-12:3-5:1:6:8-9:14")
    assert str(found) == f"{A}:1:3-12:14"
    assert str(found - GtidSet.parse(f"{A}:1-3:5:9-10:12-20")) == f"{A}:4:6-8:11"


@given(MEMBERS)
def test_equal_sets_have_one_text_which_reads_back(one: Members) -> None:
    found = GtidSet.parse(text_of(one))
    assert GtidSet.parse(str(found)) == found
    assert str(GtidSet.parse(text_of(frozenset(sorted(one, reverse=True))))) == str(found)
    assert found | GtidSet() == found - GtidSet() == found


def test_a_set_is_written_as_a_server_writes_it() -> None:
    text = f"{B.upper()}:5:1-3:4, {A}:7:nightly:2:1:5,\n{A}:9"
    assert str(GtidSet.parse(text)) == f"{A}:7:9:nightly:1-2:5,{B}:1-5"
    assert GtidSet.parse(" ") == GtidSet()


def test_a_set_without_tags_is_encoded_as_since_ever() -> None:
    encoded = GtidSet({Source(A): ((1, 4), (7, 7))}).encoded()
    numbers = [int.from_bytes(encoded[24 + 8 * i :][:8], "little") for i in range(5)]
    assert encoded[:8] == (1).to_bytes(8, "little")
    assert encoded[8:24] == bytes.fromhex(A.replace("-", ""))
    assert numbers == [2, 1, 5, 7, 8]


def test_a_set_with_a_tag_is_encoded_with_the_tags_of_all() -> None:
    encoded = GtidSet({Source(A): ((1, 1),), Source(A, "x"): ((2, 3),)}).encoded()
    uuid, one, two, four = (UUID(A).bytes, *(n.to_bytes(8, "little") for n in (1, 2, 4)))
    # The sources' count of six bytes between two that report tags; of a tag twice its size before it.
    count = b"\1" + (2).to_bytes(6, "little") + b"\1"
    assert encoded == count + uuid + b"\0" + one + one + two + uuid + b"\2x" + one + two + four


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing:1", "'nothing' is not the UUID"),
        (A, "has no numbers"),
        (f"{A}:", "'' are not numbers"),
        (f"{A}:0", "begin at 1"),
        (f"{A}:5-3", "which grow"),
        (f"{A}:1-2-3", "not numbers"),
        (f"{A}:99999999999999999999", "not numbers"),
        ("0-1-100", "is not the UUID"),
    ],
)
def test_what_is_no_set_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GtidSet.parse(text)
