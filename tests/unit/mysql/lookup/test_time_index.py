"""In which file the search for a time begins, and what it remembers; the files' times are given."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, LogPosition, file_number, position_number
from pyspark_mysql_cdc_wm.lookup import binlog_search
from pyspark_mysql_cdc_wm.lookup.binlog_search import Committed, FileBegin
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.time_index import BinlogTimeIndex
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection, in_turn
from watermark_source.planning.split import IndexEntry, NewestTime, Split
from watermark_source.planning.watermark import Millis

SECOND = 1_700_000_000
END = position_number(9, 900)


class Binlog:
    """Files that began a hundred seconds apart, from number 1 on; searches find the next multiple of ten seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: Answer) -> None:
        self.begins = {
            number: FileBegin(SECOND + 100 * number, 1_000_000 * (SECOND + 100 * number)) for number in range(1, 10)
        }
        self.looked: list[int] = []
        self.searches: list[tuple[int, int]] = []
        self.finds: Committed | None = Committed(position_number(6, 500), position_number(6, 600), 1_000_000 * SECOND)
        monkeypatch.setattr(binlog_search, "file_begin", self._begin)
        monkeypatch.setattr(binlog_search, "first_committed_after", self._search)
        answers: dict[str, Answer] = {
            "SELECT FLOOR(UNIX_TIMESTAMP": [(1_000 * (SECOND + 5_000),)],
            "SHOW BINARY LOG STATUS": [("binlog.000009", 900, "", "", "")],
            "SHOW MASTER STATUS": [("binlog.000009", 900, "", "")],
            "SHOW BINARY LOGS": [(f"binlog.{number:06}", 1_000) for number in self.begins],
            "SELECT @@GLOBAL.log_bin_basename": [("binlog",)],
            **more,
        }
        self._answers = answers

    def index(self, version: str = "9.7.4") -> BinlogTimeIndex:
        connection = RecordedConnection(self._answers, version)
        return BinlogTimeIndex(connection, LogStatus(connection), None)

    def _begin(self, _: object, file: str) -> FileBegin:
        self.looked.append(file_number(file))
        return self.begins[file_number(file)]

    def _search(self, _settings: object, _base: str, start: int, end: int, micros: int) -> Committed | None:
        self.searches.append((start, micros))
        assert end == END
        return self.finds


def after(seconds: int) -> int:
    return 1_000 * (SECOND + seconds)


@pytest.mark.parametrize(
    ("seconds", "file"),
    # Within the second in which a file began the one before may still have been written.
    [(50, 1), (150, 1), (200, 1), (201, 2), (550, 5), (601, 6), (4_000, 9)],
)
def test_a_search_begins_in_the_last_file_that_began_before(
    seconds: int, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    binlog = Binlog(monkeypatch)
    assert binlog.index().first_committed_after(after(seconds)) == binlog.finds
    # All of that millisecond is before.
    assert binlog.searches == [(LogPosition(file).number, 1_000 * after(seconds) + 999)]
    # A binary search reads few of them.
    assert len(binlog.looked) <= 4


@pytest.mark.parametrize(
    "begin",
    [
        # Its statement began before, and was committed after the time.
        FileBegin(SECOND + 1, 1_000_000 * (SECOND + 900)),
        # A session set the time.
        FileBegin(SECOND + 900, 1_000_000 * (SECOND + 1)),
        # No transaction shows a commit time.
        FileBegin(SECOND + 1, None),
    ],
)
def test_a_file_whose_times_may_deceive_is_not_passed_over(begin: FileBegin, monkeypatch: pytest.MonkeyPatch) -> None:
    binlog = Binlog(monkeypatch)
    binlog.begins[6] = begin
    binlog.index().first_committed_after(after(650))
    assert binlog.searches[0][0] < LogPosition(6).number


def test_the_next_search_goes_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    binlog = Binlog(monkeypatch)
    index = binlog.index()
    index.first_committed_after(after(550))
    index.first_committed_after(after(560))
    # A time before states nothing of where its rows are.
    index.first_committed_after(after(540))
    assert [start for start, _ in binlog.searches] == [
        LogPosition(5).number, position_number(6, 500), LogPosition(5).number,
    ]  # fmt: skip


def test_times_of_files_are_read_once_unless_a_file_had_no_transaction_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    binlog = Binlog(monkeypatch)
    index = binlog.index()
    assert index.begun_by(after(101))
    assert not index.begun_by(after(100))
    assert binlog.looked == [1]
    binlog = Binlog(monkeypatch)
    binlog.begins[1] = FileBegin(SECOND + 100, None)
    index = binlog.index()
    index.begun_by(after(101))
    index.begun_by(after(101))
    assert binlog.looked == [1, 1]


def test_a_time_that_the_servers_clock_has_not_reached_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    binlog = Binlog(monkeypatch)
    assert binlog.index().first_committed_after(after(5_000)) is None
    assert binlog.index().begin_at(after(5_001)) == END
    assert binlog.searches == []
    # MariaDB has no commit times: its clock states nothing.
    assert binlog.index("11.8.9-MariaDB").first_committed_after(after(9_000)) == binlog.finds


def test_a_query_by_time_begins_with_the_first_transaction_of_that_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    binlog = Binlog(monkeypatch)
    assert binlog.index().begin_at(after(550)) == position_number(6, 500)
    assert binlog.searches == [(LogPosition(5).number, 1_000 * after(550) - 1)]
    binlog.finds = None
    assert binlog.index().begin_at(after(550)) == END


def test_the_index_has_entries_of_the_binlog_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    binlog, table = Binlog(monkeypatch), Split("shop.t", 0)
    limits = {BINLOG: Millis(after(550)), table: Millis(after(550))}
    entry = IndexEntry(position_number(6, 500), Millis(after(0)), 100)
    assert binlog.index().first_after(limits) == {BINLOG: entry, table: None}
    assert binlog.index().newest(limits.keys()) == {BINLOG: NewestTime(Millis(after(5_000))), table: None}
    assert binlog.index("11.8.9-MariaDB").newest({BINLOG}) == {BINLOG: None}


def test_the_clock_is_read_before_the_end_of_a_search_and_after_that_of_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = in_turn([(after(100),)], [(after(600),)])
    binlog = Binlog(monkeypatch, **{"SELECT FLOOR(UNIX_TIMESTAMP": clocks})
    index = binlog.index()
    assert index.first_committed_after(after(550)) is None
    assert index.first_committed_after(after(550)) == binlog.finds
