"""What a connector offers that shows a query's progress to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from watermark_source.planning.split import Split


class ProgressSink(Protocol):
    """Where a query's progress is shown to others. Nothing is ever read back: the checkpoint alone says where to go on.

    It must not hold the query up or fail it: both methods handle what goes wrong by themselves.
    """

    def processed(self, positions: Mapping[Split, int]) -> None:
        """Take note that every row before these positions is done, and nothing else of these splits. Returns at once.

        The mapping holds all splits there are, and is not changed any more.
        """
        ...

    def close(self) -> None:
        """Show what was noted last, within two seconds or so, or give up. May interrupt a call of ``processed``."""
        ...
