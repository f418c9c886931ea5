"""Where in the binlog a moment is: files by when they were begun, then the commit times of one file's transactions."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_split import BINLOG
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from watermark_source.planning.split import IndexEntry, Split
from watermark_source.planning.watermark import Millis

if TYPE_CHECKING:
    from pyspark_mysql_cdc_wm.lookup.commit_search import Committed, FileBegin

_KEPT = 8


class BinlogTimeIndex:
    """``EventTimeIndex`` of ``spark.connector``, by commit times, which grow along the binlog as the server's clock
    does.

    Where that was set back, a moment is looked for in the last file that was begun before it, and in those after it.
    """

    def __init__(self, connection: MySqlConnection, status: LogStatus, transactions: Transactions | None) -> None:
        """Take ``None`` for ``transactions`` of a server without GTIDs."""
        self._connection = connection
        self._status = status
        self._transactions = transactions
        self._begun: dict[str, FileBegin] = {}
        self._passed: dict[int, int] = {}
        """By moment, a place before which no transaction of its file is later: searches go on from there."""

    def newest(self, splits: Set[Split]) -> Mapping[Split, Millis | None]:
        """Return the server's time: no transaction that is in the binlog by now is later.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        now = self._status.now() if BINLOG in splits else None
        return {split: None if now is None or split != BINLOG else Millis(now) for split in splits}

    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        """Return the first transaction that was committed later, as one entry; snapshots have none.

        Raises:
            SourceError: the server, the way to it, or the bytes it sent.
        """
        found: dict[Split, IndexEntry | None] = dict.fromkeys(limits)
        if (limit := limits.get(BINLOG)) is not None and (entry := self.first_committed_after(limit)) is not None:
            found[BINLOG] = IndexEntry(entry.start, Millis(entry.micros // 1_000), entry.end - entry.start)
        return found

    def first_committed_after(self, millis: int) -> Committed | None:
        """Return the first transaction that was committed in a later millisecond; raises as ``first_after``."""
        now = self._status.now()
        return None if now is not None and now <= millis else self._searched(millis, self._end())

    def begin_at(self, millis: int) -> int:
        """Return the place before the first transaction that was committed at a moment or later, else an end.

        Nothing before that end was committed so late: it is asked for first, and what comes meanwhile lies behind it.
        Raises as ``first_after``.
        """
        end, now = self._end(), self._status.now()
        found = None if now is not None and now < millis else self._searched(millis - 1, end)
        return end if found is None else found.start

    def begun_by(self, millis: int) -> bool:
        """Return whether the oldest file there is was begun by a moment; raises as ``first_after``."""
        return self._begin(self._status.files()[0]).seconds < millis // 1_000

    def _end(self) -> int:
        return (self._transactions or self._status).end().number

    def _searched(self, millis: int, end: int) -> Committed | None:
        # Brings the compiler with it, which most queries do not need here.
        from pyspark_mysql_cdc_wm.lookup.commit_search import first_committed_after  # noqa: PLC0415

        settings, base = self._connection.settings, self._status.base()
        found = first_committed_after(settings, base, self._start(millis), end, 1_000 * millis + 999)
        self._passed[millis] = end if found is None else found.start
        while len(self._passed) > _KEPT:
            del self._passed[min(self._passed)]
        return found

    def _start(self, millis: int) -> int:
        """Return a place before which nothing is later: of the last search, or the beginning of a file."""
        known = max((place for moment, place in self._passed.items() if moment <= millis), default=0)
        files = self._status.files()
        low, high = 0, len(files)
        while high - low > 1:
            middle = (low + high) // 2
            if LogPosition(file_number(files[middle])).number <= known or self._is_begun(files[middle], millis):
                low = middle
            else:
                high = middle
        return max(known, LogPosition(file_number(files[low])).number)

    def _is_begun(self, file: str, millis: int) -> bool:
        """Return whether nothing before a file was committed after a moment.

        By its first transaction: of the file itself it is told when the statement began that began it. That may have
        taken long, have been of another server, or have set its own time. Of MariaDB the same is told of transactions,
        so both must have begun.
        """
        begin = self._begin(file)
        # Within the second in which a file was begun, the one before may have been written to.
        return begin.first is not None and begin.seconds < millis // 1_000 and begin.first // 1_000 <= millis

    def _begin(self, file: str) -> FileBegin:
        from pyspark_mysql_cdc_wm.lookup.commit_search import begun  # noqa: PLC0415 - see above

        known = self._begun.get(file)
        if known is None or known.first is None:
            known = self._begun[file] = begun(self._connection.settings, file)
        return known
