"""A driver's private folder: where its sources find each other when no store is named; it ends with the driver."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from watermark_source.errors import UsageError

_SPARK = "SPARK_LOCAL_DIRS"
"""Spark tells its sources' processes the folders of the driver's block manager, which go when the driver ends."""
_FOLDER = "watermark-source"
FILE = "alignment.sqlite"
"""The database in it."""


def driver_folder() -> Path:
    """Return the folder that all sources of this driver's queries have in common.

    Raises:
        UsageError: somebody else has put a folder there.
    """
    local = os.environ.get(_SPARK, "").split(",")[0]
    own = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}-{os.getppid()}"
    folder = Path(local) / _FOLDER if local else own
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    # Of a link to elsewhere not what it leads to, which may well be a private folder of this user's.
    found = folder.lstat()
    is_own_folder = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own_folder or stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"the folder {folder}, in which the sources of an alignment group meet, is not private: it must be a "
            "folder of this user's own, with mode 0700. Remove it, or name a store: alignmentStore"
        )
    return folder
