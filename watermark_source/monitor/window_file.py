"""Why a window is open, with the picture of its query, as a file that a browser shows without anything else."""

from __future__ import annotations

from pathlib import Path

from watermark_source.errors import UsageError
from watermark_source.monitor.open_windows import OpenWindow
from watermark_source.monitor.page.document import window_html
from watermark_source.monitor.window_facts import QueryAt


def write_window(of: QueryAt, found: OpenWindow, file: str | Path) -> None:
    """Write it; raises ``UsageError`` if the file cannot be written."""
    try:
        Path(file).write_text(window_html(of, found), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        expected = "expected the path of a file in a folder that is there"
        raise UsageError(f"{file} cannot be written: {error}; {expected}") from None
