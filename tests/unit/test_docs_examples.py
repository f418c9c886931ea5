"""Examples on the pages of the docs are Python, import what there is, and name options that there are."""

from __future__ import annotations

import ast
import re
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

from pyspark_aligned_kafka.client.setting_table import SETTINGS
from pyspark_aligned_kafka.options.kafka_option_table import KAFKA_OPTIONS
from pyspark_mysql_cdc_wm.options.mysql_option_table import MYSQL_OPTIONS
from watermark_source.spark.option_rows import ENGINE_OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^ *```python\n(.*?)^ *```", page.read_text("utf-8"), re.M | re.S), 1)
]
OPTIONS = {row.name for row in (*KAFKA_OPTIONS, *MYSQL_OPTIONS, *ENGINE_OPTIONS)} | {
    row.option.name for row in SETTINGS
}
SPARKS = {"checkpointLocation", "numRows", "topic", "truncate"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_python_and_imports_what_there_is(example: str) -> None:
    for node in ast.walk(ast.parse(textwrap.dedent(example))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("watermark_source"):
            assert [
                alias.name for alias in node.names if not hasattr(import_module(str(node.module)), alias.name)
            ] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_names_options_that_there_are(example: str) -> None:
    for node in ast.walk(ast.parse(textwrap.dedent(example))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("option"):
            given = {word.arg for word in node.keywords if word.arg}
            if node.func.attr == "option" and isinstance(node.args[0], ast.Constant):
                given.add(str(node.args[0].value))
            assert given <= OPTIONS | SPARKS, given - OPTIONS
