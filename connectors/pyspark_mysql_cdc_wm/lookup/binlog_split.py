"""The split that a server's binlog is: its positions are the numbers of ``LogPosition``."""

from __future__ import annotations

from watermark_source.planning.split import Split

BINLOG = Split("binlog", 0)
