"""The path on this machine that Spark takes a text for."""

from __future__ import annotations

import re
from pathlib import Path


def local_path(place: str | Path) -> Path | None:
    """Return a local path, of a text that is one or a ``file:`` URI; ``None`` for what is on another file system.

    A percent sign is itself: Hadoop's paths decode none, so that Spark writes to a folder of that name.
    """
    text = str(place)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
    if scheme is None:
        return Path(text).expanduser()
    if scheme[1].lower() != "file":
        return None
    return Path(re.sub(r"^//(?:localhost(?=/))?", "", text[len(scheme[0]) :]))
