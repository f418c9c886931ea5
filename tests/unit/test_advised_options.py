"""Each option that the engine names, typed as it stands, is one that the connector of the source has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import pyspark_aligned_kafka
import pyspark_aligned_kafka.source
import pyspark_mysql_cdc_wm
import pyspark_mysql_cdc_wm.source
import watermark_source
from examples.file_log import pyspark_file_log
from watermark_source.errors import OptionError
from watermark_source.option_table import OptionTable
from watermark_source.planning.hold_kinds import HoldKind, SplitFacts
from watermark_source.planning.holds import HeldBy, Hold
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState
from watermark_source.planning.strategy import Bounded
from watermark_source.spark.data_source import STREAM_OPTIONS
from watermark_source.spark.option_rows import ENGINE_OPTIONS
from watermark_source.status_model.hold_texts import advice, from_start, no_later_record, sentence, wrong_time
from watermark_source.status_model.watermark_warnings import LateSplit, future_text, late_text, lead_text, zone_text
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
_NEEDS = {
    "idleFollows": {"alignmentGroup": "g", "idleTimeout": "30 seconds"},
    "eventTimeErrors": {"eventTimeColumn": "value:$.at"},
    "timeZone": {"eventTimeColumn": "at"},
}
"""What an advised option, or its value, is advised with, where the connector has it."""


def texts(words: Words) -> Iterator[str]:
    """Yield all that can be stated about a source of such words."""
    every = SplitFacts(at=SplitState(5, 5), holds=True, waits_for_budget=True)
    few = replace(every, waits_for_budget=False, waits_for_more=True)
    for kind in HoldKind:
        for by in (HeldBy.SPLIT, HeldBy.SOURCE):
            for given in ({}, {"is_last": True}, {"timeout": 30_000}, {"follows_group": True}, {"lag": 5}):
                hold = Hold(name="orders-0", kind=kind, by=by, **given)
                yield advice(hold, words)
                yield from (sentence(hold, words, about) for about in (every, few))
    yield from (from_start(words), no_later_record(words), wrong_time(words))
    hour, late = 3_600_000, LateSplit(Split("orders", 0), LateRows((0, 3), longest=8_500))
    yield from (
        zone_text(hour, words),
        future_text(hour, None, words, is_announced=False),
        lead_text(hour, hour, words),
    )
    for each in (late, late._replace(was_idle=True, idle_timeout=30_000), late._replace(was_added=True)):
        yield late_text([each], Bounded(), words)
    yield from (str(text).format(column="at") for field in fields(words) if (text := getattr(words, field.name)))


def lines_of(words: Words) -> set[tuple[str, str]]:
    """Return the options, with their values, that are to be written as they stand."""
    return {match for text in texts(words) for match in re.findall(r'\.option\("(\w+)", "([^"…]+)"\)', text)}


def refused(name: str, words: Words) -> list[str]:
    """Return the advised lines that ``load()`` refuses before it connects, and the named options that there are not."""
    _, source, needed = CONNECTORS[name]
    table: OptionTable = source({}).option_table()
    known = {option.name for option in table.options} - table.no_meaning.keys()
    found = []
    for option, value in sorted(lines_of(words)):
        beside = _NEEDS.get(option, {})
        given = needed | {key: text for key, text in beside.items() if key in known} | {option: value}
        try:
            source({}).source_options(given)
            made = source(given)
            if name != "mysql-cdc-wm":
                made.schema()
        except OptionError as error:
            found.append(f"{option}={value}: {error}")
    named = {word for text in texts(words) for word in re.findall(r"\b[a-z]+[A-Z]\w+\b", text)}
    return found + sorted(named - known - {"availableNow"})


@pytest.mark.parametrize("name", CONNECTORS)
def test_the_connector_accepts_every_line_and_has_every_option_that_is_named(name: str) -> None:
    words = CONNECTORS[name][0]
    assert ("idleTimeout", "30 seconds") in lines_of(words)
    assert refused(name, words) == []


@pytest.mark.parametrize("foreign", [{"limit": "maxOffsetsPerTrigger"}, {"at_rest": '.option("timeZone", "UTC")'}])
def test_an_option_of_another_connector_is_found(foreign: dict[str, str]) -> None:
    assert refused("file-log", replace(FILES.words, **foreign))


_OLD = {
    "maxEventTimeLag": "1 minute", "lookaheadTime": "1 minute", "alignmentWaitForFirst": "true",
    "snapshotHoldsGroup": "false", "readToEndFirst": "true", "useProcessingTimeWhenCaughtUp": "true",
    "percentileRows": "400", "watermarkFormat": "millis", "keyMode": "FAILFAST", "keyTimeZone": "UTC",
    "schemaRegistryToken": "s3cret", "useProcessingTimeDuringBinlog": "true", "reportHost": "driver.example.org",
    "reportPorts": "40000-40015", "valueTimeZone": "UTC", "serverTimeZone": "UTC", "schemaChangeBehavior": "ignore",
    "unloggedChangeBehavior": "ignore", "loggedStatementBehavior": "ignoreOtherTables",
}  # fmt: skip
"""A text for each option of earlier versions."""


@pytest.mark.parametrize("name", ["aligned-kafka", "mysql-cdc-wm"])
def test_options_of_earlier_versions_become_options_that_there_are(name: str) -> None:
    table: OptionTable = CONNECTORS[name][1]({}).option_table()
    known = {option.name for option in table.options}
    for row in table.renamed:
        assert row.old not in known
        for old in (*row.values, _OLD[row.old]):
            now = table.current({row.old: old})
            assert now.keys() <= known
            by_name = {option.name: option for option in table.options}
            assert all(by_name[key].read(text) is not None for key, text in now.items())


def test_the_engine_names_no_option_of_one_connector_alone() -> None:
    """In no literal, docstrings included: what it states about such options are the connector's words."""
    shared = {option.name for option in (*ENGINE_OPTIONS, *STREAM_OPTIONS)}
    tables = [source({}).option_table() for _, source, _ in CONNECTORS.values()]
    own = {option.name for table in tables for option in table.options} - shared
    pattern = re.compile(rf"\b({'|'.join([*filter(_has_capital, own), *CONNECTORS])})\b")
    engine = Path(watermark_source.__file__).parent
    found = {
        f"{file.relative_to(engine)}:{node.lineno}: {name}"
        for file in engine.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in pattern.findall(node.value)
    }
    assert found == set()


def _has_capital(name: str) -> bool:
    """Return whether a name is no common word, such as ``columns``."""
    return name != name.lower()
