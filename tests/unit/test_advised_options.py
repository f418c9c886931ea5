"""Each option that a sentence about a watermark names, typed as it stands, is one that the connector has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import pyspark_aligned_kafka
import pyspark_aligned_kafka.source
import pyspark_mysql_cdc_wm
import pyspark_mysql_cdc_wm.source
from examples.file_log import pyspark_file_log
from watermark_source.monitor.hold_texts import advice, from_start, no_later_record, sentence, wrong_time
from watermark_source.planning.holds import Circumstances, HeldBy, Hold, HoldKind
from watermark_source.words import Words

FILES = pyspark_file_log.FileLogSource(None, earliest=True)  # type: ignore[arg-type]
CONNECTORS: dict[str, tuple[Words, Any, dict[str, str]]] = {
    "aligned-kafka": (
        pyspark_aligned_kafka.source.WORDS,
        pyspark_aligned_kafka.DefaultSource,
        {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"},
    ),
    "mysql-cdc-wm": (
        pyspark_mysql_cdc_wm.source.WORDS,
        pyspark_mysql_cdc_wm.DefaultSource,
        {"hostname": "h", "username": "u", "password": "p", "tables": "shop.orders"},
    ),
    "file-log": (FILES.words, pyspark_file_log.DefaultSource, {"folder": "/x"}),
}
_NEEDS = {"idleFollows": {"alignmentGroup": "g", "idleTimeout": "30 seconds"}}
_OF_A_STRATEGY = {"watermarkColumn", "watermarkStrategy", "announcedBy", "writerTimeToLive"}
"""Named only where the user chose a strategy that needs them, or, with its value, in ``Words.at_rest``."""


def texts(words: Words) -> Iterator[str]:
    """Yield all that can be said about a source of such words."""
    every = Circumstances(holds=True, waits_for_budget=True)
    few = Circumstances(holds=True, waits_for_more=True)
    for kind in HoldKind:
        for by in (HeldBy.SPLIT, HeldBy.SOURCE):
            for fields in ({}, {"is_last": True}, {"timeout": 30_000}, {"follows_group": True}, {"lag": 5}):
                hold = Hold(name="orders-0", kind=kind, by=by, **fields)
                yield advice(hold, words)
                if kind is not HoldKind.BOUND:
                    yield from (sentence(hold, words, about) for about in (every, few))
    yield from (from_start(words), no_later_record(words), wrong_time(words))


@pytest.mark.parametrize("name", CONNECTORS)
def test_every_advised_line_is_accepted(name: str) -> None:
    words, source, needed = CONNECTORS[name]
    made = source({})
    lines = {match for text in texts(words) for match in re.findall(r'\.option\("(\w+)", "([^"…]+)"\)', text)}
    assert ("idleTimeout", "30 seconds") in lines
    for option, value in sorted(lines):
        given = needed | _NEEDS.get(option, {}) | {option: value}
        assert made.source_options(given)[option] is not None, option


@pytest.mark.parametrize("name", CONNECTORS)
def test_every_named_option_is_one_of_the_connector(name: str) -> None:
    words, source, _ = CONNECTORS[name]
    known = {option.name.lower() for option in source({}).option_table().options}
    named = {word for text in texts(words) for word in re.findall(r"\b[a-z]+[A-Z]\w+\b", text)} - _OF_A_STRATEGY
    assert "idleTimeout" in named
    assert {word for word in named if word.lower() not in known} <= {"availableNow"}
