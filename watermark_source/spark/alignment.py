"""A source's place in an alignment group: nobody's without the option, else kept in a store (``group_store``)."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from watermark_source.alignment.others import NOBODY, Others, unanswered
from watermark_source.eventtime.watermark import MAX
from watermark_source.planning.planner import Plan
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.spark.options import DRIVER, EngineOptions

if TYPE_CHECKING:
    from watermark_source.group_store.meeting import Meeting


class Membership:
    """What the runner asks about the members of its group elsewhere, and tells them."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._meeting: Meeting | None = None
        self._member: str | None = None
        self._complete = False
        """Whether as many as wanted have been there in this process."""
        self._patience_ends = 0.0

    def others(self, state: SourceState) -> Others:
        """Return what is known of the others when a batch is planned that begins in ``state``.

        Raises:
            UsageError: the group has another drift.
        """
        if self._options.alignment_group is None or self._options.alignment_store is None:
            return NOBODY
        if self._meeting is None:
            self._member = state.member or secrets.token_hex(6)
            self._meeting = _meeting(self._options, self._options.alignment_group, self._member)
            self._patience_ends = time.monotonic() + self._options.alignment_time_to_live / 1_000
        met_before = state.member is not None
        # A limit there was, once they had met: that there is none in the offset says that nobody counted.
        last_limit = MAX if met_before and state.limit is None else state.limit
        found = self._meeting.others(last_limit)
        if not self._complete:
            # Who was there before is given its time to come again; who was not, all the time there is.
            late = met_before and time.monotonic() >= self._patience_ends
            self._complete = late or found.members + 1 >= (self._options.alignment_members or 1)
        return found if self._complete else unanswered(found, last_limit, awaited=True)

    def tell(self, plan: Plan) -> None:
        """Tell the others what was planned."""
        if self._meeting is not None:
            waits = any(t.status is SplitStatus.PAUSED for t in plan.state.splits.values())
            self._meeting.tell(plan.member, waits=waits)

    def named(self, state: SourceState) -> SourceState:
        """Return a state that says which member it is of."""
        if not self._complete or state.member == self._member:
            return state
        return replace(state, member=self._member)

    @property
    def trouble(self) -> str | None:
        """Return why what is known of the others may be old."""
        return None if self._meeting is None else self._meeting.trouble

    def close(self) -> None:
        """Leave the group; takes no lock."""
        if self._meeting is not None:
            self._meeting.close()


def _meeting(options: EngineOptions, group: str, member: str) -> Meeting:
    # Loaded where it is needed: it takes a third of a second.
    from watermark_source.group_store.meeting import Meeting  # noqa: PLC0415
    from watermark_source.group_store.place import place_of_driver  # noqa: PLC0415
    from watermark_source.group_store.store import GroupStore, Identity, store_url  # noqa: PLC0415

    store = options.alignment_store or DRIVER
    url = place_of_driver() if store == DRIVER else store_url(store)
    drift, time_to_live = options.alignment_max_drift, options.alignment_time_to_live
    return Meeting(GroupStore(url), Identity(group, member, options.source_name, drift, time_to_live))
