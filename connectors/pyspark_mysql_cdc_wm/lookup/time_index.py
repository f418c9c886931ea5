"""Binlog positions by commit time: a binary search of the files' begin times, then the commit times of one file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, LogPosition, file_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from watermark_source.contract.stream import EventTimeIndex
from watermark_source.planning.split import IndexEntry, NewestTime, Split
from watermark_source.planning.watermark import Millis

if TYPE_CHECKING:
    from pyspark_mysql_cdc_wm.lookup.binlog_search import Committed, FileBegin

_KEPT = 8


class BinlogTimeIndex(EventTimeIndex):
    """Implements ``EventTimeIndex`` by commit times, which grow along the binlog as the server's clock
    does.

    If the clock was set back, the search begins in the last file that began before the given time.
    """

    def __init__(self, connection: MySqlConnection, status: LogStatus, transactions: Transactions | None) -> None:
        """Keep the look-ups; ``transactions`` is ``None`` for a server without GTIDs."""
        self._connection = connection
        self._status = status
        self._transactions = transactions
        self._begins: dict[str, FileBegin] = {}
        self._searched_to: dict[int, int] = {}
        """By time in milliseconds, the position up to which no transaction is later; the next search begins there."""

    def newest(self, splits: Set[Split]) -> Mapping[Split, NewestTime | None]:
        """Return the server's time, which is not before the commit of any transaction in the binlog.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        now = self._status.now() if BINLOG in splits else None
        return {split: None if now is None or split != BINLOG else NewestTime(Millis(now)) for split in splits}

    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        """Return the first transaction that was committed after each limit, as one entry; snapshots have none.

        Raises:
            SourceError: the server cannot be reached, or refuses, or sent bytes that cannot be read.
        """
        entries: dict[Split, IndexEntry | None] = dict.fromkeys(limits)
        if (limit := limits.get(BINLOG)) is not None and (first := self.first_committed_after(limit)) is not None:
            entries[BINLOG] = IndexEntry(first.start, Millis(first.micros // 1_000), first.end - first.start)
        return entries

    def first_committed_after(self, millis: int) -> Committed | None:
        """Return the first transaction that was committed in a later millisecond; raises as ``first_after``."""
        now = self._status.now()
        return None if now is not None and now <= millis else self._search(millis, self._end())

    def begin_at(self, millis: int) -> int:
        """Return the position of the first transaction that was committed at ``millis`` or later, else an end.

        The end is requested before the search, so transactions that are committed meanwhile lie behind it. Raises as
        ``first_after``.
        """
        end, now = self._end(), self._status.now()
        first = None if now is not None and now < millis else self._search(millis - 1, end)
        return end if first is None else first.start

    def begun_by(self, millis: int) -> bool:
        """Return whether the oldest file began before ``millis``; raises as ``first_after``."""
        return self._begin(self._status.files()[0]).seconds < millis // 1_000

    def _end(self) -> int:
        return (self._transactions or self._status).end().number

    def _search(self, millis: int, end: int) -> Committed | None:
        # This module imports the compiler, which most queries do not need here.
        from pyspark_mysql_cdc_wm.lookup.binlog_search import first_committed_after  # noqa: PLC0415

        settings, base = self._connection.settings, self._status.base()
        first = first_committed_after(settings, base, self._start(millis), end, 1_000 * millis + 999)
        self._searched_to[millis] = end if first is None else first.start
        while len(self._searched_to) > _KEPT:
            del self._searched_to[min(self._searched_to)]
        return first

    def _start(self, millis: int) -> int:
        """Return a position before which no commit is later: where the last search ended, or a file's beginning."""
        known = max((place for time, place in self._searched_to.items() if time <= millis), default=0)
        files = self._status.files()

        def is_later(file: str) -> bool:
            return LogPosition(file_number(file)).number > known and not self._began_before(file, millis)

        last = files[bisect_left(files, True, lo=1, key=is_later) - 1]
        return max(known, LogPosition(file_number(last)).number)

    def _began_before(self, file: str, millis: int) -> bool:
        """Return whether no transaction before a file was committed after ``millis``.

        The file's own time is the start time of the statement that began it: the statement may have taken long, may
        come from another server, or its session may have set the time. The commit time of the file's first transaction
        must therefore not be later either. On MariaDB that too is a statement's start time, so both are compared.
        """
        begin = self._begin(file)
        # The previous file may still have been written within the second in which this one began.
        return begin.first is not None and begin.seconds < millis // 1_000 and begin.first // 1_000 <= millis

    def _begin(self, file: str) -> FileBegin:
        from pyspark_mysql_cdc_wm.lookup.binlog_search import file_begin  # noqa: PLC0415 - see above

        begin = self._begins.get(file)
        if begin is None or begin.first is None:
            begin = self._begins[file] = file_begin(self._connection.settings, file)
        return begin
