"""The kit's harnesses of the file logs: the example's, and one with all that a connector may have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from examples.file_log.pyspark_file_log import DefaultSource
from tests.spark.file_log import append
from tests.unit.testing.full_file_log import FullDataSource
from watermark_source_testing import Ability, Harness, Row

ABILITIES = frozenset(
    {
        Ability.CHOSEN_TIMES, Ability.SEVERAL_SPLITS, Ability.NEW_SPLITS, Ability.LOSS, Ability.QUIET,
        Ability.BUILT_OFFLINE, Ability.BATCHES,
    }
)  # fmt: skip


class ExampleHarness(Harness):
    source = DefaultSource
    abilities = ABILITIES

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "log"
        self.folder.mkdir()

    @property
    def options(self) -> Mapping[str, str]:
        return {"folder": str(self.folder), "columns": "value long", "startingOffsets": "earliest"}

    @property
    def options_at_end(self) -> Mapping[str, str]:
        return {**self.options, "startingOffsets": "latest"}

    def write(self, split: int, rows: Sequence[Row]) -> None:
        with (self.folder / f"rows-{split}.jsonl").open("a") as file:
            file.writelines(json.dumps({"time": row.event_time, "value": row.value}) + "\n" for row in rows)

    def lose(self, split: int) -> None:
        (self.folder / f"rows-{split}.jsonl").write_text("")


class DeletedFileHarness(ExampleHarness):
    """The same, except for what becomes of a file."""

    def lose(self, split: int) -> None:
        (self.folder / f"rows-{split}.jsonl").unlink()


class FullHarness(ExampleHarness):
    source = FullDataSource
    abilities = ABILITIES | {Ability.TIME_INDEX, Ability.PREVIEW, Ability.SECRETS, Ability.REMOTE, Ability.MARKS}
    mark_options: ClassVar[Mapping[str, str]] = {"marked": "true", "watermarkStrategy": "punctuated"}
    unreachable_options: ClassVar = {"server": "127.0.0.1:1"}
    secrets = ("s3cret t0ken",)

    @property
    def options(self) -> Mapping[str, str]:
        return {"directory": str(self.folder), "token": self.secrets[0], "startingOffsets": "earliest"}

    def write(self, split: int, rows: Sequence[Row]) -> None:
        append(self.folder, split, rows, log="rows")


class CutHarness(FullHarness):
    """Its ranges end where a row index states, and are cut where a cutter states."""

    abilities = FullHarness.abilities | {Ability.ROW_INDEX, Ability.CUTTER}

    @property
    def options(self) -> Mapping[str, str]:
        return {**super().options, "cut": "true"}
