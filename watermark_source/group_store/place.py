"""Place: where the members of one driver meet when no store is named, a private folder that ends with the driver."""

from __future__ import annotations

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


def place_of_driver() -> Path:
    """Return the folder that all sources of this driver's queries have in common.

    Raises:
        UsageError: somebody else has put a folder there.
    """
    local = os.environ.get(_SPARK, "").split(",")[0]
    own = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}-{os.getppid()}"
    folder = Path(local) / _FOLDER if local else own
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"the folder {folder}, in which the sources of an alignment group meet, is not private: it must be this "
            "user's own, with mode 0700. Remove it, or name a store: alignmentStore"
        )
    return folder
