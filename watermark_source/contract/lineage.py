"""What a connector answers about logs that are led by one of several replicas."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Protocol

from watermark_source.planning.lineage import History
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState


class Lineage(Protocol):
    """The epochs of logs that can lose their ends, and give the positions to other rows (planning/lineage.py)."""

    def histories(self, splits: Mapping[Split, SplitState]) -> Mapping[Split, History]:
        """Return the epochs of each log, newest first, as of its end that was returned last or later.

        They reach back to the ``epoch`` of the split's state, or an earlier one; where that is not known, to the one
        of the row before ``position``. A log whose newest epoch is that of the state has lost nothing, and is left out
        without a request. Called for each plan.
        """
        ...

    def forget(self, logs: Set[str]) -> None:
        """Forget logs that were created again."""
        ...
