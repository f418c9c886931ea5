"""Blocks of code on the pages: each is run by a test, or marked as not run; their options are those that there are."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from importlib import import_module

import pytest

from examples.play import lines
from pyspark_aligned_kafka.client.setting_table import SETTINGS
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.kafka_option_table import KAFKA_OPTIONS
from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.options.mysql_option_table import MYSQL_OPTIONS
from tests.unit.docs_blocks import BLOCKS, GENERATED, PAGES, PART, ROOT, SERVER, blocks
from watermark_source.spark.option_rows import ENGINE_OPTIONS

BLOCKS_OF = {page.relative_to(ROOT).as_posix(): list(blocks(page)) for page in PAGES}
EXAMPLES = [
    pytest.param(textwrap.dedent(block.code), id=f"{page}:{number}")
    for page, found in BLOCKS_OF.items()
    for number, block in enumerate(found, 1)
    if block.language == "python"
]
CHECKED = [
    pytest.param(textwrap.dedent(block.code), id=f"{page}:{number}")
    for page, verdicts in BLOCKS.items()
    for number, (block, verdict) in enumerate(zip(BLOCKS_OF[page], verdicts, strict=False), 1)
    if block.language == "python" and verdict in (SERVER, PART)
]
"""Others are run, or name a registry or files, which the check of the options reads."""
OPTIONS = {row.name for row in (*KAFKA_OPTIONS, *MYSQL_OPTIONS, *ENGINE_OPTIONS)} | {
    row.name for row in SETTINGS.values()
}
SPARKS = {"checkpointLocation", "numRows", "topic", "truncate"}
DELTAS = {"userMetadata", "txnAppId", "txnVersion"}
PARSED = {
    "aligned-kafka": (kafka_options.parse, {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}),
    "mysql-cdc-wm": (
        mysql_options.parse, {"hostname": "db", "username": "cdc", "password": "secret", "tables": "shop.orders"}
    ),
}  # fmt: skip
"""By format: the check of all options, and what a block may have from a block before it."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_python_and_imports_what_there_is(example: str) -> None:
    for node in ast.walk(ast.parse(example)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("watermark_source"):
            assert [
                alias.name for alias in node.names if not hasattr(import_module(str(node.module)), alias.name)
            ] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_names_options_that_there_are(example: str) -> None:
    for node in ast.walk(ast.parse(example)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("option"):
            given = {word.arg for word in node.keywords if word.arg}
            if node.func.attr == "option" and isinstance(node.args[0], ast.Constant):
                given.add(str(node.args[0].value))
            assert given <= OPTIONS | SPARKS | DELTAS, given - OPTIONS


@pytest.mark.parametrize("page", sorted(BLOCKS_OF))
def test_each_block_is_run_by_a_test_or_marked_as_not_run(page: str) -> None:
    """A block that is new, or gone, is an entry of tests/unit/docs_blocks.py: what it shows is typed by readers."""
    if page != GENERATED:
        assert len(BLOCKS_OF[page]) == len(BLOCKS.get(page, ())), [
            block.code.split("\n")[0] for block in BLOCKS_OF[page]
        ]


def test_a_test_that_runs_a_block_exists() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = {verdict for verdicts in BLOCKS.values() for verdict in verdicts if not verdict.startswith("not run")}
    assert [each for each in named if f"def {each}(" not in texts] == []


@pytest.mark.parametrize("example", CHECKED)
def test_the_options_of_an_example_are_accepted_together(example: str) -> None:
    tree = ast.parse(example)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
            given = dict(options_of(node, tree))
            parse, needed = PARSED.get(given.pop("format", ""), (dict, {}))
            parse({**(needed if "subscribePattern" not in given else {}), **given})


def options_of(load: ast.Call, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the options that are constants in a chain of calls, those of dictionaries of the block too."""
    dictionaries = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    call: ast.expr = load
    while isinstance(call, ast.Call | ast.Attribute):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            pairs: list[tuple[ast.expr | None, ast.expr]] = []
            if call.func.attr == "format":
                pairs = [(ast.Constant("format"), call.args[0])]
            elif call.func.attr == "option":
                pairs = [(call.args[0], call.args[1])]
            elif call.func.attr == "options":
                for word in call.keywords:
                    value = dictionaries.get(word.value.id) if isinstance(word.value, ast.Name) else word.value
                    if word.arg is not None:
                        pairs.append((ast.Constant(word.arg), word.value))
                    elif isinstance(value, ast.Dict):
                        pairs += zip(value.keys, value.values, strict=True)
            for name, value in pairs:
                if isinstance(name, ast.Constant) and isinstance(value, ast.Constant):
                    yield str(name.value), str(value.value)
        call = call.func if isinstance(call, ast.Call) else call.value


def test_the_lines_of_the_quickstart_are_those_that_play_prints() -> None:
    """Those run as they stand: ``test_the_lines_that_play_prints_run_as_they_stand``."""
    typed = [textwrap.dedent(block.code).replace("\\\n    ", "").strip() for block in BLOCKS_OF["docs/quickstart.md"]]
    job, doctor, profile = lines(".venv/bin/python", "localhost:9092", "orders", "checkpoints")
    assert job.partition(" --checkpoint ")[0] in typed
    assert doctor in typed
    assert profile == doctor.replace(" doctor ", " profile ")
