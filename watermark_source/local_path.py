"""The path that Spark takes a text for: on this machine, or on its default file system."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from watermark_source.errors import UsageError, shortened

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_OF_THIS_HOST: Final = re.compile(r"(?s)(?://(?:localhost)?(?=/)|(?!//))(/.*)")


def local_path(place: str | Path) -> Path | None:
    """Return a local path, of a text that is one or a ``file:`` URI; ``None`` for what is on another file system.

    Percent signs and tildes are themselves: Hadoop's paths decode none, so that Spark writes to a folder of that name.

    Raises:
        UsageError: a URI of another host, or with a relative path, which Spark refuses, too.
    """
    text = str(place)
    if (scheme := _SCHEME.match(text)) is None:
        return Path(text)
    if scheme[1].lower() != "file":
        return None
    if (path := _OF_THIS_HOST.fullmatch(text, scheme.end())) is None:
        raise UsageError(f"{shortened(text)}: expected a whole path on this machine, such as file:/folder/table")
    return Path(path[1])


def with_scheme(place: str | Path, default: str) -> str:
    """Return a place as Spark takes it: a path without a scheme is on its default file system (``fs.defaultFS``).

    Raises:
        UsageError: a relative path, which is in the home folder of a user of that file system.
    """
    text = str(place)
    if _SCHEME.match(text) or default.startswith("file:"):
        return text
    root = re.match(r"[^:/]+://[^/]*", default)
    if root is None or not text.startswith("/"):
        raise UsageError(
            f"{shortened(text)}: Spark's default file system is {shortened(default)} (fs.defaultFS); expected a whole "
            f"path with its scheme, such as file:{Path(text).absolute()}"
        )
    return root[0] + text
