"""The path that Spark takes a text for: on this machine, or on its default file system."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from watermark_source.errors import UsageError, shortened

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def local_path(place: str | Path) -> Path | None:
    """Return a local path, of a text that is one or a ``file:`` URI; ``None`` for what is on another file system.

    A percent sign is itself: Hadoop's paths decode none, so that Spark writes to a folder of that name.
    """
    text = str(place)
    if (scheme := _SCHEME.match(text)) is None:
        return Path(text).expanduser()
    if scheme[1].lower() != "file":
        return None
    return Path(re.sub(r"^//(?:localhost(?=/))?", "", text[len(scheme[0]) :]))


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
