"""Packs: rows of every type come out as they went in, whatever the session's time zone and widths."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

from watermark_source.operators.packs import ORDERING_PACKED, RowUnpacker, row_packer
from watermark_source.operators.waiting_rows import RowLayout, from_bytes


def schema(zone: str, text: pa.DataType) -> pa.Schema:
    moment = pa.timestamp("us", tz=zone)
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("at", moment),
            ("text", text),
            ("nested", pa.struct([("at", moment), ("texts", pa.list_(text))])),
            ("map", pa.map_(text, moment)),
            ("price", pa.decimal128(12, 2)),
            ("raw", pa.binary()),
            ("is_new", pa.bool_()),
        ]
    )


LAYOUT = RowLayout(schema("UTC", pa.string()), time=1)
NOON = datetime(2024, 5, 7, 12, tzinfo=UTC)
ROWS = [
    {
        "id": n,
        "at": NOON.replace(second=n),
        "text": f"text {n}",
        "nested": {"at": NOON, "texts": ["a", None]} if n % 2 else None,
        "map": [("key", NOON.replace(minute=n))],
        "price": Decimal(n) / 4,
        "raw": bytes([n, 0]),
        "is_new": None if n == 3 else n % 2 == 0,
    }
    for n in range(12)
] + [{"id": 12}]


def batches(zone: str, text: pa.DataType, size: int) -> list[pa.RecordBatch]:
    """Rows as Spark hands them over, behind their bucket."""
    rows = pa.RecordBatch.from_pylist(ROWS, schema=schema(zone, text))
    buckets = pa.array([row["id"] % 3 for row in ROWS], pa.int32())  # type: ignore[operator]
    with_bucket = pa.RecordBatch.from_arrays([buckets, *rows.columns], names=["__bucket", *rows.schema.names])
    return [with_bucket.slice(start, size) for start in range(0, len(ROWS), size)]


def test_rows_of_every_type_come_out_as_they_went_in() -> None:
    for zone, text, size in (("UTC", pa.string(), 100), ("America/New_York", pa.large_string(), 5)):
        (packs,) = row_packer(LAYOUT)(iter(batches(zone, text, size)))
        assert packs.schema.names == ORDERING_PACKED.names
        assert packs.column(0).to_pylist() == [0, 1, 2]
        found = [from_bytes(pack.as_buffer(), LAYOUT.columns).column(0).to_pylist() for pack in packs.column(3)]
        assert found == [[0, 3, 6, 9, 12], [1, 4, 7, 10], [2, 5, 8, 11]]
        left = pa.RecordBatch.from_arrays([pa.array([False, True, False]), packs.column(3)], names=["late", "rows"])
        (rows,) = RowUnpacker(LAYOUT, "late")(iter([left]))
        assert rows.schema.remove(len(LAYOUT.columns)) == LAYOUT.columns
        out = sorted(rows.to_pylist(), key=lambda row: row["id"])
        assert [row.pop("late") for row in out] == [n % 3 == 1 for n in range(13)]
        assert out == [{name: row.get(name) for name in LAYOUT.columns.names} for row in ROWS]


def test_nothing_is_no_pack() -> None:
    empty = batches("UTC", pa.string(), 100)[0].slice(0, 0)
    assert list(row_packer(LAYOUT)(iter([empty, empty]))) == []
    assert list(row_packer(LAYOUT)(iter([]))) == []
