"""What writers state of a table, in its folder, and what a reader makes of it."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem, _MockFileSystem

from watermark_source import complete_until, publish_completeness
from watermark_source.errors import CorruptDataError, UsageError
from watermark_source.local_path import local_path, with_scheme
from watermark_source.planning.watermark import LAST_MOMENT, MAX, Millis
from watermark_source.publishing import table_target
from watermark_source.publishing.file_sink import SinkLog, place_of_sink
from watermark_source.publishing.folder import Folder, file_of, marks_of, write
from watermark_source.publishing.mark import Mark, decoded, holder_of, moment_of, newest
from watermark_source.publishing.table_target import TableTarget

NOON = 1_764_417_600_000
MARK = Mark(writer="hourly", query="q", batch=3, watermark=Millis(NOON), checkpoint="file:/checkpoints/hourly")


def target(
    table: Path, run: str, writer: str = "hourly", query: str = "q", *, log: SinkLog | None = None
) -> TableTarget:
    made = TableTarget(Folder.at(table), run, "file:/none", log)
    made.prepare(writer, query)
    return made


def test_a_mark_is_read_as_it_was_written() -> None:
    for mark in (MARK, replace(MARK, watermark=None, batch=None), replace(MARK, watermark=MAX, ended=True)):
        assert decoded(str(mark), "here") == mark
    assert json.loads(str(MARK)) == {
        "completeness": 1, "writer": "hourly", "query": "q", "batch": 3, "until": NOON, "ended": False,
        "checkpoint": "file:/checkpoints/hourly",
    }  # fmt: skip
    assert MARK.until == dt.datetime(2025, 11, 29, 12, tzinfo=dt.UTC)
    assert moment_of(MAX) == dt.datetime.max.replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "text",
    ["", "copied by hand", "[1]", '{"userMetadata": 5}', "null", '{"completeness": 0.98}', '{"completeness": 1}'],
)
def test_what_another_program_wrote_is_not_a_mark(text: str) -> None:
    assert decoded(text, "here") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"completeness": 2}, {"until": LAST_MOMENT + 1}, {"until": "12:00"}, {"until": True}, {"writer": ""},
        {"batch": "3"}, {"ended": 0}, {"checkpoint": None}, {"more": 1},
    ],
)  # fmt: skip
def test_a_mark_that_this_release_does_not_know_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(CorruptDataError, match="here is not a mark of version 1"):
        decoded(json.dumps({**json.loads(str(MARK)), **changed}), "here")


def test_the_lowest_of_several_writers_counts_and_one_that_is_named_is_waited_for() -> None:
    later = replace(MARK, writer="other", watermark=Millis(NOON + 1))
    assert holder_of(newest([MARK, later])) == ("hourly", MARK)
    assert holder_of(newest([later]), ["hourly"]) == ("hourly", None)
    without = replace(MARK, watermark=None)
    assert holder_of(newest([without, later])) == ("hourly", without)
    assert holder_of({}) is None


def test_a_run_that_was_superseded_takes_nothing_back(tmp_path: Path) -> None:
    before = target(tmp_path, "run-1")
    before.announce("hourly", "q", 3, Millis(NOON))
    after = target(tmp_path, "run-2")
    assert after.last == (3, NOON)
    after.announce("hourly", "q", 4, Millis(NOON + 10))
    with pytest.raises(UsageError, match="its mark there was deleted, by a later run under the same name"):
        before.announce("hourly", "q", 3, Millis(NOON))
    before.end(has_ended=True)
    assert complete_until(tmp_path) == moment_of(NOON + 10)
    # One that has noticed nothing yet, because its process was asleep.
    before._write(replace(MARK, checkpoint="file:/none"))
    assert complete_until(tmp_path) == moment_of(NOON + 10)
    assert {mark.watermark for mark in marks_of(Folder.at(tmp_path)).values()} == {NOON, NOON + 10}
    target(tmp_path, "run-3").announce("hourly", "q", 5, None)
    assert [mark.watermark for mark in marks_of(Folder.at(tmp_path)).values()] == [NOON + 10]


def test_what_a_run_states_while_the_next_one_begins_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of a query that has ended states its last batch while the query is started again."""
    before = target(tmp_path, "run-1")
    before.announce("hourly", "q", 3, Millis(NOON))

    def write_late(folder: Folder, name: str, mark: Mark) -> None:
        if "run-2" in name and mark.batch == 3:
            before.announce("hourly", "q", 4, Millis(NOON + 10))
        write(folder, name, mark)

    monkeypatch.setattr(table_target, "write", write_late)
    after = target(tmp_path, "run-2")
    assert complete_until(tmp_path) == moment_of(NOON + 10)
    # With a longer hold its own time is earlier.
    after.announce("hourly", "q", 5, Millis(NOON + 5))
    assert complete_until(tmp_path) == moment_of(NOON + 10)
    assert len(marks_of(Folder.at(tmp_path))) == 1


def test_a_checkpoint_that_begins_anew_keeps_what_was_promised_and_has_no_batch_yet(tmp_path: Path) -> None:
    target(tmp_path, "run-1").announce("hourly", "q", 7, Millis(NOON))
    anew = target(tmp_path, "run-2", query="another")
    assert anew.last is None
    anew.announce("hourly", "another", 0, Millis(NOON - 5))
    assert complete_until(tmp_path) == moment_of(NOON)
    anew.announce("hourly", "another", 1, Millis(NOON + 5))
    assert complete_until(tmp_path) == moment_of(NOON + 5)
    anew.announce("hourly", "another", 2, None)
    assert complete_until(tmp_path) == moment_of(NOON + 5)


def test_after_the_end_no_other_query_states_under_the_name(tmp_path: Path) -> None:
    target(tmp_path, "run-1").announce("hourly", "q", 7, MAX)
    target(tmp_path, "run-2").announce("hourly", "q", 8, MAX)
    with pytest.raises(UsageError, match=r"it writes no more, .* Give this query another name, or delete _complete/"):
        target(tmp_path, "run-3", query="another")


def test_a_run_of_a_query_states_once_under_a_name(tmp_path: Path) -> None:
    first = target(tmp_path, "run-1")
    with pytest.raises(UsageError, match=r"already states for this run .* Call stop\(\) on what it returned first"):
        target(tmp_path, "run-1")
    target(tmp_path, "run-1", "daily")
    first.end(has_ended=False)
    target(tmp_path, "run-1").announce("hourly", "q", 0, Millis(NOON))
    assert complete_until(tmp_path, ["hourly"]) is None
    assert [mark.watermark for mark in marks_of(Folder.at(tmp_path)).values() if mark.writer == "hourly"] == [NOON]


def test_a_later_time_that_an_earlier_run_states_at_the_last_moment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = target(tmp_path, "run-1")
    before.announce("hourly", "q", 3, Millis(NOON))
    after = target(tmp_path, "run-2", query="another")

    def write_late(folder: Folder, name: str, mark: Mark) -> None:
        write(folder, name, mark)
        if "run-2" in name and mark.batch == 0:
            before.announce("hourly", "q", 4, Millis(NOON + 10))

    monkeypatch.setattr(table_target, "write", write_late)
    for batch, expected in ((0, NOON + 10), (1, NOON + 10), (2, NOON + 20)):
        after.announce("hourly", "another", batch, Millis(NOON + 10 * batch))
        assert complete_until(tmp_path) == moment_of(expected)
    assert len(marks_of(Folder.at(tmp_path))) == 1


def test_several_writers_of_a_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    one, other = target(tmp_path, "a"), target(tmp_path, "b", "a=b/c d", "p")
    assert complete_until(tmp_path) is None
    one.announce("hourly", "q", 0, Millis(NOON))
    assert complete_until(tmp_path) is None
    other.announce("a=b/c d", "p", 0, Millis(NOON - 1))
    assert complete_until(tmp_path) == moment_of(NOON - 1)
    assert complete_until(tmp_path, ["third"]) is None
    other.end(has_ended=True)
    assert {mark.writer: mark.ended for mark in marks_of(Folder.at(tmp_path)).values()} == {
        "hourly": False, "a=b/c d": True,
    }  # fmt: skip
    # Spark passes over a name with an underscore, unless it has an equals sign.
    assert not any("=" in file.name for file in (tmp_path / "_complete").iterdir())
    with pytest.raises(UsageError, match="at most 200 bytes"):
        file_of("ü" * 34, "run")


def test_a_reader_sees_each_mark_whole_while_it_is_replaced_and_its_run_changes(tmp_path: Path) -> None:
    found, is_done = [], threading.Event()

    def read() -> None:
        while not is_done.is_set():
            found.append(complete_until(tmp_path))

    target(tmp_path, "run-0").announce("hourly", "q", 0, Millis(NOON))
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for run in range(1, 20):
            one = target(tmp_path, f"run-{run}")
            for batch in range(10):
                one.announce("hourly", "q", 10 * run + batch, Millis(NOON + 10 * run + batch))
    finally:
        is_done.set()
        reader.join()
    moments = [moment for moment in found if moment is not None]
    assert len(moments) == len(found) > 1
    assert moments == sorted(moments)


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("/lake/counts", "/lake/counts"),
        ("file:/lake/counts/", "/lake/counts"),
        ("file:///lake/a%20b", "/lake/a%20b"),
        ("/lake/a%20b", "/lake/a%20b"),
        ("file:/lake/a b", "/lake/a b"),
        ("file://localhost/lake/counts", "/lake/counts"),
        (Path("/lake/counts"), "/lake/counts"),
    ],
)
def test_a_folder_is_named_as_spark_takes_it(place: str | Path, path: str) -> None:
    assert Folder.at(place) == Folder(LocalFileSystem(), path)


@pytest.mark.parametrize("name", ["a%20b", "a b", "100%", "ü", "a#1"])
def test_a_name_in_an_object_store_is_taken_as_it_is_written(name: str) -> None:
    assert Folder.at(f"s3a://user:a%2Fb@lake/{name}/?region=us-east-1").path == f"lake/{name}"


def test_a_folder_with_a_number_sign_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "a#1").mkdir()
    target(tmp_path / "a#1", "run", ".hidden").announce(".hidden", "q", 0, Millis(NOON))
    for place in (tmp_path / "a#1", f"file://{tmp_path}/a#1"):
        assert complete_until(place) == moment_of(NOON)


def test_in_an_object_store_a_mark_is_put_and_read() -> None:
    store = _MockFileSystem()
    store.create_dir("lake/counts/_complete")
    table = Folder(store, "lake/counts")
    for batch in (0, 1):
        write(table, "hourly.run.json", replace(MARK, batch=batch))
        assert marks_of(table) == {"hourly.run.json": replace(MARK, batch=batch)}
    for name in ("hourly.run.json", "of a run that is gone.json"):
        table.delete(f"_complete/{name}")
    assert marks_of(table) == {}


def test_a_place_where_files_are_not_replaced_whole_is_refused() -> None:
    for place in ("hdfs://namenode/lake", "abfss://container@account/lake", "kafka:topic"):
        with pytest.raises(UsageError, match=r"expected a local path, file:, s3:, s3a: or gs:"):
            Folder.at(place)
    for place in ("hdfs://[namenode/lake", "s3://[lake/counts"):
        with pytest.raises(UsageError, match="expected the URI of a folder: Invalid IPv6 URL"):
            Folder.at(place)
    assert place_of_sink("FileSink[file:/lake/counts]") == "file:/lake/counts"
    assert place_of_sink("ForeachBatchSink") is None


@pytest.mark.parametrize(
    ("place", "default", "taken"),
    [
        ("/lake/counts", "file:///", "/lake/counts"),
        ("counts", "file:///", "counts"),
        (Path("/lake/a:b"), "s3a://bucket/", "s3a://bucket/lake/a:b"),
        ("/lake/counts", "s3a://bucket/data", "s3a://bucket/lake/counts"),
        ("/lake/counts", "hdfs://namenode:8020", "hdfs://namenode:8020/lake/counts"),
        ("/lake/counts", "viewfs:///", "viewfs:///lake/counts"),
        ("file:/lake/counts", "hdfs://namenode", "file:/lake/counts"),
        ("S3A://other/counts", "hdfs://namenode", "S3A://other/counts"),
    ],
)
def test_a_path_without_a_scheme_is_on_sparks_default_file_system(place: str | Path, default: str, taken: str) -> None:
    assert with_scheme(place, default) == taken


class Execution:
    """What publishing asks Spark of a query, before it begins."""

    def __init__(self, sink: str, default: str) -> None:
        conf = {"fs.defaultFS": default}
        state = SimpleNamespace(newHadoopConf=lambda: conf)
        self._session = SimpleNamespace(sessionState=lambda: state)
        self._sink = sink

    def sparkSession(self) -> object:  # noqa: N802 - as Spark has it
        return self._session

    def sink(self) -> SimpleNamespace:
        return SimpleNamespace(toString=lambda: self._sink)

    def resolvedCheckpointRoot(self) -> str:  # noqa: N802
        return "file:/checkpoint"


@pytest.mark.parametrize("sink", ["ForeachBatchSink", "FileSink[/lake/counts]", "DeltaSink[/lake/counts]"])
@pytest.mark.parametrize("default", ["hdfs://namenode:8020", "abfss://lake@account.example.org/"])
def test_a_folder_that_spark_takes_to_be_elsewhere_is_not_taken_for_one_on_this_machine(
    sink: str, default: str
) -> None:
    query: Any = SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=lambda: Execution(sink, default)))
    seen = re.escape(f"{default.rstrip('/')}/lake/counts")
    with pytest.raises(UsageError, match=rf"{seen}: expected .*fs\.defaultFS.* write file:/lake/counts"):
        publish_completeness(query, "/lake/counts", "hourly")
    with pytest.raises(UsageError, match=r"counts: .*whole path with its scheme, such as file:/"):
        publish_completeness(query, "counts", "hourly")


def test_the_folder_that_a_sink_writes_is_named_as_it_can_be_written() -> None:
    execution = Execution("FileSink[file:/lake/other]", "hdfs://namenode")
    query: Any = SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=lambda: execution))
    with pytest.raises(UsageError, match='write to="file:/lake/other"'):
        publish_completeness(query, "file:/lake/counts", "hourly")


def test_a_damaged_mark_is_named_and_files_of_others_are_passed_over(tmp_path: Path) -> None:
    target(tmp_path, "a").announce("hourly", "q", 0, Millis(NOON))
    (tmp_path / "_complete" / "README").write_text("by hand")
    assert complete_until(tmp_path) == moment_of(NOON)
    (tmp_path / "_complete" / "x.json").write_text("")
    with pytest.raises(CorruptDataError, match=r"_complete/x\.json is not a mark"):
        complete_until(tmp_path)


class Logs:
    """The log of a query, and that of the file sink that it writes to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = SinkLog(Folder.at(root / "table"), Folder.at(root / "checkpoint"))

    def planned(self, number: int, at: float, *, clock_ahead: float = 0.0) -> None:
        folder = self.root / "checkpoint" / "offsets"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_text(f'v1\n{{"batchTimestampMs":{round((at + clock_ahead) * 1_000)}}}\n{{}}')
        os.utime(folder / str(number), (at, at))

    def written(self, name: str, at: float) -> None:
        folder = self.root / "table" / "_spark_metadata"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("v1")

        os.utime(folder / name, (at, at))


def test_batches_of_a_file_sink_are_those_of_the_query_that_planned_them(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.log.need_own(None)
    for number in range(12):
        logs.planned(number, 100 + number)
        logs.written(f"{number}.compact" if number == 9 else str(number), 100.5 + number)
    # Planned and not written yet, and one of which Spark has deleted the plan.
    logs.planned(12, 113)
    (tmp_path / "checkpoint" / "offsets" / "0").unlink()
    logs.log.need_own(11)
    # A run that was killed before its commit has written it, and the next one repeats it.
    logs.written("12", 113.2)
    Logs(tmp_path).log.need_own(12)
    # Spark has deleted entries that it has compacted, before they were compared.
    (tmp_path / "table" / "_spark_metadata" / "12").unlink()
    logs.planned(13, 114)
    logs.written("13", 114.5)
    logs.log.need_own(13)
    logs.written("14", 100)
    with pytest.raises(UsageError, match=r"passes over batches .* has batch 14 of another"):
        logs.log.need_own(13)
    logs.planned(14, 115)
    with pytest.raises(UsageError, match=r"passes over batches .* has batch 14 of another"):
        logs.log.need_own(14)


def test_a_driver_whose_clock_is_ahead_of_the_file_systems_is_not_taken_for_another_query(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.planned(0, 100, clock_ahead=30)
    logs.written("0", 100.5)
    logs.log.need_own(0)
    # One that is ahead hides no entry of an earlier query.
    logs.planned(1, 200, clock_ahead=30)
    logs.written("1", 150)
    with pytest.raises(UsageError, match=r"passes over batches .* has batch 1 of another"):
        logs.log.need_own(1)


def test_a_copied_checkpoint_is_not_taken_for_another_query(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.planned(0, 100)
    logs.written("0", 100.5)
    os.utime(tmp_path / "checkpoint" / "offsets" / "0")
    logs.log.need_own(0)


@pytest.mark.parametrize("planned", [0, 1, 3], ids=["none", "some", "more than the earlier one"])
def test_a_checkpoint_that_begins_anew_over_a_file_sinks_log_is_refused(tmp_path: Path, planned: int) -> None:
    """Spark would skip its first batches without an error, and the mark would be ahead of the rows."""
    logs = Logs(tmp_path)
    for number in range(2):
        logs.written(str(number), 100 + number)
    for number in range(planned):
        logs.planned(number, 200 + number)
    for number in range(2, planned):
        logs.written(str(number), 201 + number)
    with pytest.raises(UsageError, match=r"Spark's file sink passes over batches .* has batch (0, 1|1) of another"):
        target(tmp_path / "table", "run", log=logs.log)
    assert complete_until(tmp_path / "table") is None


def test_two_writers_into_the_folder_of_a_file_sink_are_refused_though_their_batches_are_at_the_same_moments(
    tmp_path: Path,
) -> None:
    logs, table = Logs(tmp_path), tmp_path / "table"
    one = target(table, "run", log=logs.log)
    refused = "one sequence of batches.* Seen beside writer other: hourly. Let each query write to a folder of its own"
    with pytest.raises(UsageError, match=refused):
        target(table, "run", "other", "p", log=logs.log)
    # Both at once, before either has seen the other.
    write(Folder.at(table), "other.run.json", replace(MARK, writer="other", query="p"))
    logs.planned(0, 100)
    logs.written("0", 101)
    with pytest.raises(UsageError, match="Seen beside writer hourly: other"):
        one.announce("hourly", "q", 0, Millis(NOON))
    # The same query under another name has the sequence to itself.
    (table / "_complete" / "other.run.json").unlink()
    target(table, "run", "renamed", log=logs.log)


def test_a_second_query_into_the_folder_of_a_file_sink_is_found_while_both_run(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.planned(0, 100)
    logs.written("0", 101)
    one = target(tmp_path / "table", "run", log=logs.log)
    one.announce("hourly", "q", 0, Millis(NOON))
    logs.written("1", 102)
    logs.planned(1, 110)
    with pytest.raises(UsageError, match="passes over batches"):
        one.announce("hourly", "q", 1, Millis(NOON + 1))
    assert complete_until(tmp_path / "table") == moment_of(NOON)


@pytest.mark.parametrize("place", ["/t", "file:/t", "file:///t", "FILE:///t", "file://localhost/t", Path("/t")])
def test_a_folder_of_this_machine_is_a_path_or_a_uri(place: str | Path) -> None:
    assert local_path(place) == Path("/t")


def test_a_tilde_is_part_of_a_path_as_in_spark() -> None:
    """The marks would be in another folder than the rows."""
    assert local_path("~/t") == Path("~/t")


@pytest.mark.parametrize("place", ["file://t/orders", "file:t", "file:", "file://localhost"])
def test_a_uri_that_spark_refuses_is_no_relative_path(place: str) -> None:
    with pytest.raises(UsageError, match="expected a whole path on this machine"):
        local_path(place)
