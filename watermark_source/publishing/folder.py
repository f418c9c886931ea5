"""Folder: a table's folder on this machine or in an object store, with its writers' marks in files that Spark ignores.

Each run of a writer has a file of its own, ``_complete/WRITER.RUN.json``, which it replaces whole after each batch. So
a run that was superseded, and writes once more when its process is resumed, takes nothing back: a reader takes the
latest time of each writer. A new run deletes the files of those before with its first statement, of a batch that is
later than all of theirs: until then they may state one more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from watermark_source.errors import CorruptDataError, SourceError, UsageError, shortened
from watermark_source.local_path import local_path
from watermark_source.publishing.mark import Mark, decoded

FOLDER = "_complete"
"""Spark, Hive, Trino and Delta's VACUUM ignore names that begin with an underscore."""
SCHEMES = {"s3a": "s3", "s3n": "s3", "s3": "s3", "gs": "gs"}
"""Schemes of Spark's, and those of pyarrow: object stores replace an object whole, and other systems may not."""
_MOST_NAME = 200
"""Bytes of a writer's name in the name of its file."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, and what reads and writes its files. Errors of the file system are ``SourceError``."""

    system: FileSystem = field(hash=False)
    path: str

    @classmethod
    def at(cls, place: str | Path) -> Folder:
        """Return the folder at a path of this machine or a URI; raises ``UsageError``, and ``SourceError``."""
        if (local := local_path(place)) is not None:
            return cls(LocalFileSystem(), str(local.absolute()))
        text = str(place)
        try:
            parts = urlsplit(text, allow_fragments=False)
            if (known := SCHEMES.get(parts.scheme)) is None:
                raise UsageError(
                    f"{shortened(text)}: expected a local path, file:, s3:, s3a: or gs:, where a file is replaced "
                    "whole; a path without a scheme is on Spark's fs.defaultFS. For a folder on this machine, here and "
                    f"in the query's start(), write file:{shortened(parts.path)}; elsewhere, write the time with the "
                    "rows: completeness_of in foreachBatch"
                )
            # Spark takes a path as it is written, and pyarrow decodes it.
            system, path = FileSystem.from_uri(parts._replace(scheme=known, path=quote(parts.path)).geturl())
        except ValueError as error:
            raise UsageError(f"{shortened(text)}: expected the URI of a folder: {error}") from None
        except OSError as error:
            raise SourceError(f"{shortened(text)} cannot be opened: {error}") from error
        return cls(system, path.rstrip("/"))

    def times(self, under: str) -> Mapping[str, float]:
        """Return the files of a folder below, without those whose names begin with a dot, and when each was written.

        In seconds since 1970; empty if there is no such folder.
        """
        with self._declared():
            found = self.system.get_file_info(FileSelector(f"{self.path}/{under}", allow_not_found=True))
        files = (each for each in found if each.type is FileType.File and not each.base_name.startswith("."))
        return {each.base_name: each.mtime_ns / 1e9 for each in files}

    def time(self, name: str) -> float | None:
        """Return when a file was written, in seconds since 1970; ``None`` if there is none."""
        with self._declared():
            found = self.system.get_file_info(f"{self.path}/{name}")
        return found.mtime_ns / 1e9 if found.type is FileType.File else None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; ``None`` if there is none."""
        with self._declared():
            try:
                with self.system.open_input_stream(f"{self.path}/{name}") as stream:
                    return bytes(stream.readall())
            except FileNotFoundError:
                return None

    def replace(self, under: str, name: str, content: bytes) -> None:
        """Write a file in a folder below in one step: readers see what was there before, or all of it."""
        path = f"{self.path}/{under}/{name}"
        with self._declared():
            if not isinstance(self.system, LocalFileSystem):
                with self.system.open_output_stream(path) as stream:
                    stream.write(content)
                return
            self.system.create_dir(f"{self.path}/{under}")
            unseen = f"{self.path}/{under}/.{name}"
            with self.system.open_output_stream(unseen) as stream:
                stream.write(content)
            self.system.move(unseen, path)

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        with self._declared():
            if self.system.get_file_info(f"{self.path}/{name}").type is FileType.File:
                self.system.delete_file(f"{self.path}/{name}")

    @contextmanager
    def _declared(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SourceError(f"{self.path}: the file system refuses or does not answer: {error}") from error


def file_of(writer: str, run: str) -> str:
    """Return the name of the file of a run's mark; raises ``UsageError`` for a name that is too long for one."""
    # Spark reads a name with an equals sign in it although it begins with an underscore; ``times`` passes over dots.
    name = re.sub(r"^\.", "%2E", quote(writer, safe=""))
    if len(name) > _MOST_NAME:
        raise UsageError(
            f"writer = {shortened(writer)}: expected a name that takes at most {_MOST_NAME} bytes in a URL"
        )
    return f"{name}.{run}.json"


def marks_of(folder: Folder) -> Mapping[str, Mark]:
    """Return the marks in a table's folder, by the names of their files.

    Raises:
        CorruptDataError: a file cannot be read as one.
        SourceError: the file system refuses, or does not answer.
    """
    names = names_of_marks(folder)
    while True:
        found = {name: mark for name in names if (mark := _mark(folder, name)) is not None}
        # A new run may have written its file and deleted another meanwhile: a listing may have neither.
        before, names = names, names_of_marks(folder)
        if names == before == found.keys():
            return found


def names_of_marks(folder: Folder) -> Set[str]:
    """Return the names of the files that have marks."""
    return {name for name in folder.times(FOLDER) if name.endswith(".json")}


def _mark(folder: Folder, name: str) -> Mark | None:
    content = folder.read(f"{FOLDER}/{name}")
    if content is None:
        return None
    if (mark := decoded(content, where := f"{folder.path}/{FOLDER}/{name}")) is None:
        raise CorruptDataError(f"{where} is not a mark: seen {shortened(content)}; delete it")
    return mark


def write(folder: Folder, name: str, mark: Mark) -> None:
    """Write the mark of a run."""
    folder.replace(FOLDER, name, str(mark).encode())
