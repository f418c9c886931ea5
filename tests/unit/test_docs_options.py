"""The pages of options say what the option tables say."""

from __future__ import annotations

import re

import pytest

from docs.generate import ENGINE_GROUPS, MYSQL_PAGE, PAGE, VERSIONS_PAGE, mysql_page, page, versions_page
from pyspark_aligned_kafka.client.setting_table import REFUSED, SETTINGS
from pyspark_aligned_kafka.options.kafka_option_table import OPTION_TABLE
from pyspark_mysql_cdc_wm.options.mysql_option_table import MYSQL_OPTIONS
from pyspark_mysql_cdc_wm.options.mysql_option_table import OPTION_TABLE as MYSQL_TABLE
from watermark_source.option_table import Option
from watermark_source.spark.option_rows import ENGINE_OPTIONS
from watermark_source.spark.strategy_rows import STRATEGIES

DOCUMENTED = [*OPTION_TABLE.options, *SETTINGS.values()]


def test_the_pages_are_what_the_tables_generate() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python docs/generate.py"
    assert MYSQL_PAGE.read_text(encoding="utf-8") == mysql_page(), "run: python docs/generate.py"
    assert VERSIONS_PAGE.read_text(encoding="utf-8") == versions_page(), "run: python docs/generate.py"


@pytest.mark.parametrize("row", MYSQL_OPTIONS, ids=lambda row: row.name)
def test_every_option_of_mysql_is_on_its_page_once(row: Option) -> None:
    assert len(re.findall(rf"^\| `{re.escape(row.name)}` \|", mysql_page(), re.MULTILINE)) == 1


@pytest.mark.parametrize("row", DOCUMENTED, ids=lambda row: row.name)
def test_every_option_is_on_the_page_once(row: Option) -> None:
    assert len(re.findall(rf"^\| `{re.escape(row.name)}` \|", page(), re.MULTILINE)) == 1


@pytest.mark.parametrize("name", [f"kafka.{name}" for name in REFUSED])
def test_every_refused_setting_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in page()


def test_the_page_of_watermarks_states_what_each_strategy_gives() -> None:
    text = (PAGE.parent / "watermarks.md").read_text(encoding="utf-8")
    table = text.partition("| `watermarkStrategy` |")[2].partition("\n\n")[0]
    names = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    assert sorted(names) == sorted([*(row.name for row in STRATEGIES), "package.module:Class"])


def test_every_engine_option_has_its_place() -> None:
    assert ENGINE_GROUPS.keys() == {row.name for row in ENGINE_OPTIONS}


@pytest.mark.parametrize("row", [*DOCUMENTED, *MYSQL_OPTIONS], ids=lambda row: row.name)
def test_every_row_is_complete(row: Option) -> None:
    assert row.doc.endswith(".")
    assert row.example
    assert row.accepted.startswith("must be ")


@pytest.mark.parametrize("row", [
    row
    for row in {row.name: row for table in (OPTION_TABLE, MYSQL_TABLE) for row in table.options}.values()
    if row.default not in (None, "", ()) and row.default_text is not None
], ids=lambda row: row.name)  # fmt: skip
def test_a_default_is_what_the_page_says(row: Option) -> None:
    assert row.default_text is not None
    assert row.read(row.default_text) == row.default


@pytest.mark.parametrize("rows", [DOCUMENTED, [*MYSQL_OPTIONS, *ENGINE_OPTIONS]], ids=["kafka", "mysql"])
def test_no_option_is_named_twice(rows: list[Option]) -> None:
    names = [row.name.lower() for row in rows]
    assert len(set(names)) == len(names)
