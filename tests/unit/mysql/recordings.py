"""Recorded binlogs (record.py), ready to decode."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from pyspark_mysql_cdc_wm.binlog.compressed_transactions import uncompressed
from pyspark_mysql_cdc_wm.binlog.dump_packets import PacketWalk
from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder, Changes
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from pyspark_mysql_cdc_wm.records.table_map import WriterVersion, read_table_map
from tests.unit.mysql.record import FOLDER

MAGIC_SIZE = 4


def content(name: str) -> bytes:
    return (FOLDER / f"{name}.binlog").read_bytes()


def charsets(flavour: str = "mysql") -> dict[int, str]:
    found = json.loads((FOLDER / f"charsets-{flavour}.json").read_text(encoding="utf-8"))
    return {int(number): charset for number, charset in found.items()}


def surveyed(name: str) -> tuple[Bytes, Longs]:
    """Return the events of a file one by one, by code that an earlier process has compiled."""
    file = content(name)
    memory, walk, at = padded(file), PacketWalk(position=MAGIC_SIZE, checksums=False), 0
    events = []
    while at < len(file):
        stop = at + int.from_bytes(file[at + 9 : at + 13], "little")
        events.append(walk.one_event(memory, at, stop, name))
        at = stop
    return memory, np.concatenate(events)


def bodies(name: str, *kinds: EventType) -> list[bytes]:
    memory, events = surveyed(name)
    return [memory[each[START] + HEADER_SIZE : each[STOP]].tobytes() for each in events if each[TYPE] in kinds]


def table_maps(name: str, *, mariadb: bool = False) -> dict[str, TableMap]:
    found = [read_table_map(body, name, WriterVersion(mariadb)) for body in bodies(name, EventType.TABLE_MAP)]
    return {each.table: each for each in found}


def decoded(name: str, table: str = "orders", flavour: str = "mysql", **options: Any) -> list[Changes]:
    def wanted(found: TableMap) -> list[str] | None:
        return [str(column.name) for column in found.columns] if found.table == table else None

    decoder = ChangeDecoder(charsets(flavour), wanted, **options)
    return [
        changes
        for memory, events in uncompressed(*surveyed(name), name)
        for changes in decoder.decode(memory, events, name)
    ]


def rows(found: list[Changes]) -> list[tuple[int, tuple[Any, ...]]]:
    return [
        (kind, row)
        for each in found
        for kind, row in zip(
            each.images.kinds.tolist(), zip(*(column.to_pylist() for column in each.columns), strict=True), strict=True
        )
    ]
