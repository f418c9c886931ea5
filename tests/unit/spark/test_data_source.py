"""What ``AlignedDataSource`` does with options."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from examples.file_log.pyspark_file_log import DefaultSource as DataSource
from examples.file_log.pyspark_file_log import FileLogReader, FileLogSource
from watermark_source.connector import (
    AlignedDataSource,
    Connector,
    Millis,
    MinimumRows,
    MissingPackageError,
    Option,
    OptionError,
    OptionTable,
    RowIndex,
    RowLimits,
    SchemaError,
    SourceOptions,
    UsageError,
    WholeLogs,
)
from watermark_source.errors import UnknownOptionError
from watermark_source.spark.data_source import taken_from_schema
from watermark_source.spark.source_time import SourceTime
from watermark_source.spark.stream_reader import AlignedStreamReader

FOLDER = Option(name="folder", parse=str, accepted="must be a folder", example="/data", doc="Where files are.")


@dataclass(frozen=True)
class FilesSource(FileLogSource):
    names: Sequence[str]
    name = "files"

    @property
    def columns(self) -> StructType:
        return StructType([StructField(name, LongType()) for name in self.names])


class Files(AlignedDataSource):
    """A format of someone else's."""

    format_name = "files"
    own_options = (FOLDER,)
    own_columns = ("value",)

    def source(self, options: SourceOptions) -> FilesSource:
        return FilesSource(FileLogReader("", {}, "time", True), True, self.own_columns)


def test_an_option_like_no_other_learns_those_of_the_format() -> None:
    with pytest.raises(
        UnknownOptionError, match="and no similar one; files has folder, startingOffsets, maxRowsPerTrigger"
    ):
        Files({"zzz": "1"}).schema()


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("punctuated", "needs records that carry watermarks, and those of this source carry none"),
        ("percentile", "needs positions that count rows"),
        ("lookahead", "needs a log that can be read from any position on"),
    ],
)
def test_a_strategy_that_needs_what_a_format_does_not_declare_is_refused_with_the_reason(
    strategy: str, why: str
) -> None:
    given = {"watermarkStrategy": strategy, "maxOutOfOrderness": "1 minute"} if strategy != "punctuated" else {
        "watermarkStrategy": strategy}  # fmt: skip
    with pytest.raises(OptionError, match=f'watermarkStrategy = "{strategy}": {why}'):
        Files(given).schema()


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
    of_table = Files({"provider": "files", "owner": "me", "folder": "/data", "option.folder": "/data"}).schema()
    assert taken_from_schema(plain, {"folder": "/here"}) == ({"folder": "/here"}, plain)
    assert taken_from_schema(of_table, {}) == ({"folder": "/data"}, plain)
    assert taken_from_schema(of_table, {"Folder": "/here"}) == ({"folder": "/here"}, plain)
    given = {
        "provider": "files",
        "owner": "me",
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


OF_TABLE = {"provider": "files", "owner": "me", "folder": "/data", "option.folder": "/data"}


def refusal(schema: StructType, **read: str) -> str | None:
    """Return why a read of a table is refused; ``None`` if it is not."""
    reader = Files(cast(Any, read)).streamReader(schema)
    if isinstance(reader, AlignedStreamReader):
        return None
    with pytest.raises(SchemaError) as refused:
        cast(Any, reader).initialOffset()
    return str(refused.value)


def test_a_read_of_a_table_may_name_its_source_and_not_change_what_the_table_states() -> None:
    """Its columns state it to operators: they would take event time for what the source does not send."""
    table = Files(cast(Any, OF_TABLE)).schema()
    assert refusal(table) is None
    assert refusal(table, sourceName="returns", maxOutOfOrderness="5 seconds") is None
    text = refusal(table, watermarkStrategy="none", alignmentGroup="g")
    assert text is not None
    assert "group not set, now g; processingTime False, now True. Write these in CREATE TABLE" in text
    text = refusal(table, includeLate="true")
    assert text is not None
    assert "leave the options out that change its columns" in text


def test_a_table_of_a_release_with_other_words_is_read() -> None:
    table = Files(cast(Any, OF_TABLE)).schema()
    words = {"dated_by": "write it otherwise", "of_an_earlier_release": "x"}
    table["marker"].metadata["watermark_source"]["words"] = words
    assert refusal(table) is None
    found = SourceTime.of_metadata(table["marker"].metadata)
    assert found is not None
    assert found.words.dated_by == "write it otherwise"


class Log(DataSource):
    """The example of docs/writing-a-source.md, under a name that another package installs."""

    needed_packages = ("pyarrow", "absent_package")
    requirement = "my-connector[all]"


def test_a_missing_package_is_an_error_at_load_that_names_what_to_install() -> None:
    with pytest.raises(
        MissingPackageError, match=r"needs the package absent_package.*pip install 'my-connector\[all\]'"
    ):
        Log({"folder": "/data"}).schema()


def rows_of(options: dict[str, str]) -> list[dict[str, Any]]:
    source = DataSource(options)
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [row for batch in batches for row in batch.drop_columns("marker").to_pylist()]


def test_a_batch_read_of_whole_logs_has_the_rows_of_every_split(
    tmp_path: Path, logged: Callable[[], list[str]]
) -> None:
    for number, values in enumerate(((1, 2, 3), (), (4,))):
        lines = "".join(f'{{"time": {1_000 * value}, "id": {value}}}\n' for value in values)
        (tmp_path / f"orders-{number}.jsonl").write_text(lines)
    options = {"folder": str(tmp_path), "columns": "id long"}
    assert [(row["id"], row["event_time"].timestamp()) for row in rows_of(options)] == [(n, n) for n in (1, 2, 3, 4)]
    assert logged() == []


def test_a_batch_read_names_the_options_that_only_a_stream_takes(
    tmp_path: Path, logged: Callable[[], list[str]]
) -> None:
    (tmp_path / "orders-0.jsonl").write_text('{"time": 1, "value": "x"}\n')
    given = {"folder": str(tmp_path), "STARTINGOFFSETS": "latest", "idleTimeout": "5 s", "minPartitions": "2"}
    assert [row["value"] for row in rows_of(given)] == ["x"]
    assert logged() == ["A batch read ignores startingOffsets, idleTimeout"]


def test_a_format_without_batch_reads_refuses_them() -> None:
    source = Files({})
    with pytest.raises(UsageError, match=r'format\("files"\) is a stream: use spark.readStream'):
        source.reader(source.schema())


def test_whole_logs_are_refused_where_positions_are_not_rows(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'format\("file-log"\) has no batch read: WholeLogs takes'):
        WholeLogs(CutSource(FileLogReader(str(tmp_path), {}, "time", True), True)).late_ranges()


class CutSource(FileLogSource):
    """Its positions are not rows."""

    def open(self) -> Connector:
        return replace(super().open(), row_index=cast(RowIndex, object()))


class Limited(Files):
    def row_limits(self, options: SourceOptions) -> RowLimits:
        return RowLimits(7, MinimumRows(3, Millis(50)))


def test_a_format_may_have_limits_of_its_own() -> None:
    source = Limited({})
    reader = source.streamReader(source.schema())
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert isinstance(reader, AlignedStreamReader)
    assert reader.options.policy.minimum_rows == MinimumRows(3, Millis(50))


def test_an_option_that_has_no_meaning_is_refused_with_the_reason() -> None:
    table = OptionTable((FOLDER,), no_meaning={"folder": "there are no files"})
    with pytest.raises(OptionError, match='option folder = "/data": has no meaning here: there are no files'):
        table.parse({"FOLDER": "/data"})
