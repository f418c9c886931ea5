"""What ``AlignedDataSource`` does with options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from watermark_source.errors import OptionError, SchemaError, UnknownOptionError
from watermark_source.option_table import Option
from watermark_source.spark.data_source import AlignedDataSource
from watermark_source.spark.table_options import taken_from_schema

FOLDER = Option(name="folder", parse=str, accepted="must be a folder", example="/data", doc="Where files are.")


class Files(AlignedDataSource):
    """A format of somebody else's."""

    format_name = "files"
    own_options = (FOLDER,)
    own_columns = ("value",)

    def columns(self, values: Mapping[str, Any]) -> StructType:
        return StructType([StructField(name, LongType()) for name in self.own_columns])


def test_an_option_like_no_other_is_told_those_of_the_format() -> None:
    with pytest.raises(
        UnknownOptionError, match="nor one like it; files has folder, startingOffsets, maxRowsPerTrigger"
    ):
        Files({"zzz": "1"}).schema()


@pytest.mark.parametrize("strategy", ["punctuated", "percentile", "lookahead"])
def test_a_format_that_declares_no_abilities_has_no_strategy_that_needs_some(strategy: str) -> None:
    with pytest.raises(OptionError, match=f'watermarkStrategy = "{strategy}"'):
        Files({"watermarkStrategy": strategy}).schema()


@pytest.mark.parametrize("taken", ["event_time", "Marker"])
def test_a_column_of_the_systems_that_has_a_name_of_ours_is_refused(
    taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "own_columns", ("value", taken, "late"))
    with pytest.raises(SchemaError, match=f"columns of its own named {taken}; .* adds event_time, marker"):
        Files({}).schema()
    with pytest.raises(SchemaError, match=f"named {taken}, late;"):
        Files({"includeLate": "true"}).schema()


SECRET = Option(name="token", parse=str, accepted="must be a token", example="t", doc="", secret=True)


def test_a_table_keeps_its_options_in_its_schema_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "own_options", (FOLDER, SECRET))
    plain = Files({"folder": "/data"}).schema()
    of_table = Files({"provider": "files", "folder": "/data", "option.folder": "/data"}).schema()
    assert taken_from_schema(plain, {"folder": "/here"}) == ({"folder": "/here"}, plain)
    assert taken_from_schema(of_table, {}) == ({"folder": "/data"}, plain)
    assert taken_from_schema(of_table, {"Folder": "/here"}) == ({"folder": "/here"}, plain)
    given = {
        "provider": "files",
        "folder": "/data",
        "token": "hidden",
        "option.folder": "/data",
        "option.token": "hidden",
    }
    with_secret = Files(given).schema()
    assert "hidden" not in with_secret.json()
    with pytest.raises(OptionError, match=r"option token: is a secret, which is not kept with a table: give it where"):
        taken_from_schema(with_secret, {})
    assert taken_from_schema(with_secret, {"token": "t"})[0] == {"folder": "/data", "token": "t"}
