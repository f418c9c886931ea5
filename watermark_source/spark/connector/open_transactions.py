"""What a connector offers whose logs hold rows that nobody may read yet."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Protocol

from watermark_source.planning.split import Split


class OpenTransactions(Protocol):
    """Rows that are in a log, and that nobody may read before their transaction is over."""

    def behind(self, ends: Mapping[Split, int]) -> Set[Split]:
        """Return the splits that have such rows at these ends, and those of which that is not known."""
        ...
