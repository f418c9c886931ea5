"""Random documents, whole and broken, by the hundred thousand: the scan finds what the standard library finds."""

from __future__ import annotations

import json
import random

import pytest

from pyspark_aligned_kafka.records.json_path import JsonPath
from tests.unit.kafka.records.json_oracle import BYTE_ORDER_MARK, by_the_library, by_the_scan

AT_ONCE = 5_000
NAMES = ("a", "b", "c", "é", "a.b", 'q"', "\\", "😀", "", "abcdefgh", "\x00", "/")
TEXTS = (*NAMES, "2026-11-24T12:00:00Z", "{", "}", "[1,2]", "\n", "\ud800", "x" * 40)
NUMBERS = ("0", "-0", "17", "1.5", "1e5", "-2.50E-03", "1700000000123", "12345678901234567890123")
SPACES = ("", "", "", " ", "\n", "\t \r")
HARM = (b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"1", b"e", b"\\u00", b"\xff", b"\xc3", b"\x00", b" ")


def document(chance: random.Random, depth: int = 4) -> str:
    kind = chance.choice("ooooaatnw" if depth else "tnw")
    if kind == "o":
        members = (
            f"{space(chance)}{text(chance, NAMES)}{space(chance)}:{document(chance, depth - 1)}"
            for _ in range(chance.randint(0, 5))
        )
        made = "{" + (",".join(members) or space(chance)) + "}"
    elif kind == "a":
        made = "[" + (",".join(document(chance, depth - 1) for _ in range(chance.randint(0, 3))) or space(chance)) + "]"
    elif kind == "t":
        made = text(chance, TEXTS)
    else:
        made = chance.choice(NUMBERS if kind == "n" else ("true", "false", "null", "NaN", "Infinity", "-Infinity"))
    return space(chance) + made + space(chance)


def text(chance: random.Random, choices: tuple[str, ...]) -> str:
    return json.dumps(chance.choice(choices), ensure_ascii=chance.random() < 0.5)


def space(chance: random.Random) -> str:
    return chance.choice(SPACES)


def written(chance: random.Random) -> bytes | None:
    if chance.random() < 0.01:
        return None
    made = bytearray(document(chance).encode("utf-8", "surrogatepass"))
    if chance.random() < 0.02:
        made[:0] = BYTE_ORDER_MARK
    if chance.random() < 0.4:
        for _ in range(chance.randint(1, 2)):
            at = chance.randint(0, len(made))
            made[at : at + chance.randint(0, 2)] = chance.choice(HARM)
    return bytes(made)


@pytest.mark.timeout(7_200)
def test_random_documents_are_read_as_by_the_standard_library(request: pytest.FixtureRequest) -> None:
    count, seed = request.config.getoption("--json-documents"), request.config.getoption("--kills-seed")
    chance = random.Random(seed)
    for _ in range(0, count, AT_ONCE):
        path = JsonPath(tuple(chance.choice((*NAMES, 0, 0, 1, 2)) for _ in range(chance.randint(0, 3))))
        made = [written(chance) for _ in range(AT_ONCE)]
        for each, found in zip(made, by_the_scan(made, path), strict=True):
            assert found == by_the_library(each, path), (each, path)
