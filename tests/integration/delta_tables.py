"""Delta as a platform has it: the Spark it is for, its jars and settings, and the files of a table, read without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from services.ivy import Module, jars

SPARK: Final = "4.2.0"
"""The newest that a release of Delta is for."""
DELTAS: Final = tuple(Module("io.delta", name, "4.4.0") for name in ("delta-spark_4.2_2.13", "delta-storage"))
"""Spark has what else they need."""
# What a platform sets, so that its tables are Delta's and small queries have few tasks. None of it is ours.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "4",
}


def delta_jars() -> str:
    return ",".join(map(str, jars(f"delta-{DELTAS[0].revision}", DELTAS, transitive=False)))


def files_of_table(table: Path) -> list[Path]:
    """Return the files that make up a table now, by all of its commits."""
    files = set[str]()
    for commit in sorted((table / "_delta_log").glob("[0-9]*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                files.add(action["add"]["path"])
            if "remove" in action:
                files.discard(action["remove"]["path"])
    return [table / unquote(file) for file in sorted(files)]
