"""A query that continues with another server, or with this one after a reset, by the answers of a server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, LogPosition, position_number
from pyspark_mysql_cdc_wm.lookup import binlog_search
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from pyspark_mysql_cdc_wm.lookup.replicas import MySqlReplica
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection
from watermark_source.errors import DataLossError, OffsetError, ResponseTimeoutError, SourceError, UnreachableError

SERVER, OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "9a511b7b-7059-11e2-9a24-08002762b8af"
END = position_number(5, 900)
# What was executed before each file.
BEFORE = {"binlog.000003": "1-9", "binlog.000004": "1-29", "binlog.000005": "1-39"}


def answers(executed: str = "1-50", purged: str = "1-9", *, in_time: bool = True) -> dict[str, Answer]:
    return {
        "SHOW BINARY LOG STATUS": [("binlog.000005", 900, "", "", f"{SERVER}:{executed}")],
        "SHOW BINARY LOGS": [(file, 900) for file in BEFORE],
        "SELECT @@GLOBAL.gtid_purged": [(f"{SERVER}:{purged}" if purged else "",)],
        "SELECT @@GLOBAL.gtid_owned": [("",)],
        "SELECT @@GLOBAL.log_bin_basename": [("/data/binlog",)],
        "SELECT WAIT_FOR_EXECUTED_GTID_SET": [(0 if in_time else 1,)],
        **{
            f"SHOW BINLOG EVENTS IN '{file}' LIMIT 2": [("", 126, "Previous_gtids", 1, 157, f"{SERVER}:{numbers}")]
            for file, numbers in BEFORE.items()
        },
    }


def replica(given: dict[str, Answer], *, gtids: bool = True) -> MySqlReplica:
    connection = RecordedConnection(given)
    status = LogStatus(connection)
    transactions = Transactions(connection, status) if gtids else None
    if transactions is not None:
        transactions.remember(END, GtidSet.parse(f"{SERVER}:1-50"))
    return MySqlReplica(connection, status, transactions, SERVER, None)


def read(numbers: str) -> str:
    return f"{SERVER}:{numbers}"


@pytest.fixture
def next_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | Exception], None]:
    """Choose which transaction the binlog has next, or that it cannot be read there."""

    def choose(first: str | Exception) -> None:
        def found(*_: object) -> GtidSet:
            if isinstance(first, Exception):
                raise first
            return GtidSet.parse(first)

        monkeypatch.setattr(binlog_search, "first_transaction", found)

    return choose


@pytest.mark.parametrize(
    ("done", "file"), [("1-9", 3), ("1-28", 3), ("1-29", 4), ("1-38", 4), ("1-39", 5), ("1-50", 5)]
)
def test_on_another_server_reading_begins_with_the_file_of_the_first_transaction_not_read(done: str, file: int) -> None:
    assert replica(answers()).begin(read(done)) == LogPosition(file).number


def test_a_server_that_lacks_what_was_read_is_refused_once_it_had_time_to_apply_it() -> None:
    with pytest.raises(OffsetError, match=f"lacks transactions that the query has read: {SERVER}:51-60"):
        replica(answers(in_time=False)).begin(read("1-60"))


def test_a_server_that_purged_what_comes_next_is_data_loss() -> None:
    with pytest.raises(DataLossError, match=f"or never were in it: {SERVER}:6-9. .*log_replica_updates = ON"):
        replica(answers()).begin(read("1-5"))


@pytest.mark.parametrize(
    ("done", "gtids", "why"),
    [
        (None, True, "the checkpoint was made without GTIDs"),
        ("1-9", False, r"the server has no GTIDs \(gtid_mode\)"),
    ],
)
def test_without_gtids_on_both_sides_positions_of_another_server_mean_nothing(
    done: str | None, gtids: bool, why: str
) -> None:
    with pytest.raises(OffsetError, match=f"are of another server, and mean nothing to MySQL at db1:3306: {why}"):
        replica(answers(), gtids=gtids).begin(None if done is None else read(done))


def test_a_set_in_the_checkpoint_that_is_none_is_refused() -> None:
    with pytest.raises(OffsetError, match="the checkpoint's offset cannot be read: 'no set'"):
        replica(answers()).begin("no set")


def test_positions_of_the_new_server_come_behind_those_of_the_old_one() -> None:
    shift = replica(answers()).shift_after(position_number(7, 1_234))
    assert shift + LogPosition(1).number > position_number(7, 1_234)
    assert shift == LogPosition(7, 0).number


def test_a_batch_begun_on_the_old_server_is_read_again_without_what_was_read_before() -> None:
    passage = replica(answers()).between(read("1-20"), read("1-45"))
    # All before the end, without 21 to 45.
    assert passage == (END, f"{SERVER}:1-20:46-50")
    with pytest.raises(ResponseTimeoutError, match=f"not committed yet: {SERVER}:51"):
        replica(answers()).between(read("1-20"), read("1-51"))


def test_a_position_at_the_end_needs_only_that_all_was_executed(next_is: Callable[..., None]) -> None:
    next_is(AssertionError("nothing is read"))
    replica(answers()).confirm(END, read("1-50"))
    with pytest.raises(OffsetError, match=rf"does not have \(any more\): {SERVER}:51-70. Was its binlog reset"):
        replica(answers()).confirm(END, read("1-70"))


def test_a_position_goes_on_if_the_transaction_before_the_next_one_was_read(next_is: Callable[..., None]) -> None:
    next_is(f"{SERVER}:41")
    replica(answers()).confirm(position_number(5, 300), read("1-40"))


@pytest.mark.parametrize(
    ("position", "first", "seen"),
    [
        # It was written again, shorter than it was.
        (position_number(5, 901), "", "it ends before"),
        # A transaction that was read begins there.
        (position_number(5, 300), read("40"), read("40")),
        (position_number(5, 300), SourceError("a broken event"), "a broken event"),
    ],
)
def test_a_binlog_that_was_reset_and_written_again_is_refused(
    position: int, first: str | Exception, seen: str, next_is: Callable[..., None]
) -> None:
    next_is(first)
    with pytest.raises(OffsetError, match=rf"does not continue at the position .*\({seen}\)\. Was the binlog reset"):
        replica(answers()).confirm(position, read("1-40"))


@pytest.mark.parametrize("failure", [UnreachableError("gone"), ResponseTimeoutError("slow")])
def test_a_server_that_does_not_answer_was_not_reset(failure: Exception, next_is: Callable[..., None]) -> None:
    next_is(failure)
    with pytest.raises(type(failure)):
        replica(answers()).confirm(position_number(5, 300), read("1-40"))


def test_where_numbers_have_a_gap_the_file_shows_whether_all_before_was_read(next_is: Callable[..., None]) -> None:
    next_is(f"{SERVER}:45")
    known = answers()
    known["SHOW BINLOG EVENTS IN 'binlog.000005' FROM 4 "] = [
        ("", 157, "Gtid", 1, 300, f"SET @@SESSION.GTID_NEXT= '{SERVER}:40'")
    ]
    replica(known).confirm(position_number(5, 300), read("1-40"))
    # Purged ones may never have been in the binlog.
    replica(known).confirm(position_number(5, 300), read("10-40"))
    with pytest.raises(OffsetError, match="does not continue at the position"):
        replica(known).confirm(position_number(5, 300), read("1-39"))


@pytest.mark.parametrize(
    ("position", "done", "purged", "expected"),
    [
        (position_number(4, 300), "1-35", "1-9", position_number(4, 300)),
        # The file is gone, and all that was in it was read.
        (position_number(2, 300), "1-9", "1-9", LogPosition(3).number),
        (position_number(2, 300), "1-8", "1-9", position_number(2, 300)),
        (position_number(2, 300), None, "1-9", position_number(2, 300)),
    ],
)
def test_a_purged_file_of_which_all_was_read_is_passed_over(
    position: int, done: str | None, purged: str, expected: int
) -> None:
    assert replica(answers(purged=purged)).resumed(position, None if done is None else read(done)) == expected


def test_a_range_within_one_file_is_never_moved_to_another() -> None:
    within = position_number(2, 300)
    assert replica(answers()).resumed(within, read("1-9"), end=position_number(2, 400)) == within
