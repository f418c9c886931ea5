"""TableTarget: a table's folder, where a query states after each batch up to when its rows are complete."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final, NamedTuple

from watermark_source.errors import UsageError, listed
from watermark_source.planning.watermark import Millis
from watermark_source.publishing.file_sink import SinkLog
from watermark_source.publishing.folder import FOLDER, Folder, file_of, marks_of, names_of_marks, write
from watermark_source.publishing.mark import Mark, newest, or_least, refusal_after_end
from watermark_source.publishing.target import Target

_STATING: Final[set[tuple[str, str]]] = set()
"""Folder and file of each mark that a thread of this process replaces."""


class _Stated(NamedTuple):
    batch: int
    watermark: Millis | None


class TableTarget(Target):
    """The mark of one run of a query in a table's folder."""

    def __init__(self, folder: Folder, run: str, checkpoint: str, sink_log: SinkLog | None) -> None:
        self._folder = folder
        self._run = run
        self._checkpoint = checkpoint
        self._sink_log = sink_log
        self._file = ""
        self._mark: Mark | None = None
        """What is in the file."""
        self._earlier: Set[str] = frozenset()
        """The files of earlier runs of the writer, which may state one more batch until this run has its first."""

    @property
    def name(self) -> str:
        """The folder."""
        return self._folder.path

    @property
    def last(self) -> _Stated | None:
        """The mark, once a batch of this query is in the table."""
        mark = self._mark
        return None if mark is None or mark.batch is None else _Stated(mark.batch, mark.watermark)

    def prepare(self, writer: str, query: str) -> None:
        """Take over what earlier runs of the writer have promised, of this checkpoint and of others."""
        self._need_own_batches(None)
        self._file = file_of(writer, self._run)
        marks = self._marks_beside(writer, query)
        earlier = {name: mark for name, mark in marks.items() if mark.writer == writer}
        for name, mark in earlier.items():
            if (refusal := refusal_after_end(query, mark)) is not None:
                raise UsageError(f"{self.name}, {refusal}, or delete {FOLDER}/{name}")
        if self._key in _STATING:
            raise UsageError(
                f"{self.name}: publish_completeness already states for this run of the query under the name {writer}. "
                "Call stop() on what it returned first, for example to change hold"
            )
        self._earlier = earlier.keys() - {self._file}
        promised = newest(earlier.values()).get(writer)
        batches = [mark.batch for mark in earlier.values() if mark.query == query and mark.batch is not None]
        self._write(
            Mark(
                writer=writer,
                query=query,
                batch=max(batches, default=None),
                watermark=None if promised is None else promised.watermark,
                checkpoint=self._checkpoint,
            )
        )
        _STATING.add(self._key)

    def announce(self, writer: str, query: str, batch: int, watermark: Millis | None) -> None:
        """State the watermark, or what an earlier run has promised where that is later."""
        assert self._mark is not None
        self._need_own_batches(batch)
        is_alone = names_of_marks(self._folder) == {self._file}
        marks = {self._file: self._mark} if is_alone else self._marks_beside(writer, query)
        if self._file not in marks:
            raise UsageError(
                f"writer {writer} states nothing more for {self.name}: its mark there was deleted, by a later run "
                "under the same name, or with the table. A name belongs to one query; to go on, start the query again, "
                "or give it another name"
            )
        promised = (mark.watermark for name, mark in marks.items() if name == self._file or name in self._earlier)
        stated = [each for each in (watermark, *promised) if each is not None]
        self._write(replace(self._mark, batch=batch, watermark=max(stated, default=None)))
        if self._earlier:
            self._delete_earlier()

    def end(self, *, has_ended: bool) -> None:
        """State that the query has ended, so that whoever waits learns it."""
        _STATING.discard(self._key)
        if has_ended and self._mark is not None and self._file in marks_of(self._folder):
            self._write(replace(self._mark, ended=True))

    def close(self) -> None:
        """Nothing stays open."""

    def _delete_earlier(self) -> None:
        """Delete the marks of earlier runs; not one that has stated a later time meanwhile, which counts on."""
        assert self._mark is not None
        ours, marks = or_least(self._mark.watermark), marks_of(self._folder)
        later = {name for name, mark in marks.items() if or_least(mark.watermark) > ours}
        for name in self._earlier - later:
            self._folder.delete(f"{FOLDER}/{name}")
        self._earlier &= later

    @property
    def _key(self) -> tuple[str, str]:
        return self._folder.path, self._file

    def _need_own_batches(self, batch: int | None) -> None:
        if self._sink_log is not None:
            self._sink_log.need_own(batch)

    def _marks_beside(self, writer: str, query: str) -> Mapping[str, Mark]:
        """Return the marks in the folder; in that of Spark's file sink none is of another query with another name.

        Two that plan their batches at the same moments would not show by the times in their logs.
        """
        marks = marks_of(self._folder)
        others = {mark.writer for mark in marks.values() if mark.writer != writer and mark.query != query}
        if self._sink_log is not None and others:
            raise UsageError(
                f"{self.name}: the log of Spark's file sink there has one sequence of batches, so that of two queries "
                f"each passes over what the other has written. Seen beside writer {writer}: {listed(others)}. Let each "
                "query write to a folder of its own"
            )
        return marks

    def _write(self, mark: Mark) -> None:
        write(self._folder, self._file, mark)
        self._mark = mark
