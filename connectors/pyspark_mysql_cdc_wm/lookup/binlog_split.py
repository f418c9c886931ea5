"""The split of a server's binlog, whose positions are the numbers of ``LogPosition``."""

from __future__ import annotations

from watermark_source.planning.split import Split

BINLOG = Split("binlog", 0)
