"""Protobuf as columns: random types and values, in any order, repeated, unknown and broken, against protobuf."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.payload_documents import block_by, values_of
from tests.protobuf_pairs import RandomBytes, RandomTypes, in_column, mutated, reader_of, sorted_maps


def compare(chance: random.Random, count: int, seen: Counter[str]) -> None:
    """Read values of a random message; of every ninth some bytes are others."""
    descriptor = RandomTypes(chance).message()
    try:
        reader = reader_of(descriptor)
    except ValueError:
        seen["refused"] += 1
        return
    values, broken, made = [], [], RandomBytes(chance)
    for at in range(count):
        value = made.value(descriptor)
        values.append(mutated(chance, value) if at % 9 == 8 else value)
        broken.append(at % 9 == 8 or made.badness > 0)
    found = block_by(reader, values)
    bad = 0
    for value, row, is_broken in zip(values, values_of(found.column), broken, strict=True):
        expected = in_column(descriptor, value)
        without = dict.fromkeys(row)
        if is_broken and expected == {}:
            seen["unclear"] += 1
            continue
        if is_broken and row == without and expected is not None:
            # In an entry of a map, and in what another field of a oneof replaces, the library reads over other types.
            seen["stricter"] += expected != without
            bad += expected != without
            continue
        assert sorted_maps(row) == (without if expected is None else expected), (descriptor.file.name, value)
        bad += expected is None
    assert found.malformed >= bad
    seen["values"] += count
    seen["bad"] += bad


@pytest.mark.parametrize("least", [2_000, pytest.param(200_000, marks=pytest.mark.long("2 000 of them"))])
def test_values_are_read_as_protobuf_reads_them(least: int) -> None:
    chance, seen = random.Random(38), Counter[str]()
    while seen["values"] < least:
        compare(random.Random(chance.random()), 20, seen)
    assert least / 50 < seen["bad"] < least / 3
    assert seen["stricter"] + seen["unclear"] < least / 100
