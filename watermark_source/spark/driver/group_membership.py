"""The membership of a source in an alignment group, kept in a store once another source can be a member.

The sources of one driver see each other by files (``group_store.local_members``), in which those of one query tell each
other what they plan. Without ``alignmentStore`` they meet in a private database once there are two; with the URL of a
database they meet there from the first plan on, also where they can have no files.
"""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import replace

from watermark_source.clock import Clock
from watermark_source.durations import format_duration
from watermark_source.errors import UsageError
from watermark_source.group_store.database import store_of
from watermark_source.group_store.file_database import FileDatabase
from watermark_source.group_store.heartbeat_client import HeartbeatClient
from watermark_source.group_store.local_members import FILE, LocalMembers, driver_folder
from watermark_source.group_store.store import GroupStore, Identity
from watermark_source.planning.group import NO_OTHERS, OtherMembers, OwnSilence, drift_in_force, incomplete
from watermark_source.planning.planner import Plan
from watermark_source.planning.state import GroupState, SplitStatus
from watermark_source.planning.watermark import MAX, MIN
from watermark_source.spark.driver.query_turns import SharedTurns
from watermark_source.spark.option_rows import DRIVER, NO_STORE
from watermark_source.spark.options import EngineOptions, GroupOptions

_log = logging.getLogger(__name__)


class Membership:
    """The other members of the alignment group, and what this source publishes to them."""

    def __init__(self, options: EngineOptions) -> None:
        self._source_name, self._group = options.source_name, options.group
        self._max_drift = self._drift = options.policy.alignment.max_drift
        """``_drift``: the one in force in the last plan."""
        self._local: LocalMembers | None = None
        self._has_files = True
        """Whether the driver's folder can be used, as far as is known."""
        self._client: HeartbeatClient | None = None
        self._last: Plan | None = None
        """The last plan while alone: it is published when another member joins."""
        self.turns = SharedTurns(options.source_name)
        """What the sources of this query, and of the driver's other queries, have reported to each other."""
        self._clock = Clock()
        self._complete = False
        """Whether this process has seen as many members as wanted."""
        self._began = 0.0
        """Since when others can join, in seconds of the monotonic clock."""

    def register(self) -> None:
        """Make this source known to the other sources of this driver.

        Spark requests the read limit of every source of a query before the first offset: sources that have registered
        by then know each other before any of them plans. If a cleaner of temporary folders has removed the file of this
        source, it registers again.
        """
        group = self._group
        if group is None or group.store is None:
            return
        if self._local is not None and not self._local.is_in_place:
            self._local.close()
            self._local = None
        if self._local is not None or not self._has_files:
            return
        try:
            self._local = LocalMembers(driver_folder(), group.name)
        except (UsageError, OSError) as error:
            if group.store == DRIVER:
                raise
            # They meet in the store all the same.
            self._has_files = False
            _log.warning(
                "sources of one query in the alignment group %s do not plan as one, as they cannot exchange files: %s",
                group.name, error,
            )  # fmt: skip

    def others(self, before: GroupState, run: str | None = None) -> OtherMembers:
        """Return the last known positions of the others for a plan that begins in a state with ``before``.

        ``run``: the id of the query's run, once it is known: its sources plan as one.
        """
        group = self._group
        if group is None or group.store is None:
            return NO_OTHERS
        self.register()
        is_alone = self._client is None and self._is_alone(before, group)
        self.turns.read(None if is_alone else run, self._local)
        if is_alone:
            return NO_OTHERS
        if self._client is None:
            self._join(before, group)
        assert self._client is not None
        met_before = before.member is not None
        # Sources that had met had a limit: without one in the offset no member counted.
        last_limit = MAX if met_before and before.limit is None else before.limit
        found = self.turns.seen(self._client.others(last_limit), last_limit, self._clock.now())
        self._note_drift(found, group)
        if self._client.trouble is not None:
            # No member can join meanwhile.
            self._began = time.monotonic()
        elif last_limit == MAX and not self._client.has_begun:
            # An earlier process met them: which members count now is unknown.
            last_limit = MIN
            found = incomplete(found, last_limit, awaited=True)
        if not self._complete:
            # A group that had met waits for its members for their time to live; another one waits without a limit.
            late = time.monotonic() >= self._began + group.time_to_live / 1_000
            wanted = 0 if late and met_before else (group.members or 1) - 1
            # Some of the members of this driver may not have reached the store yet.
            here = 0 if late or self._last is not None or group.store != DRIVER else self._here()
            self._complete = found.members >= max(wanted, here)
        return found if self._complete else incomplete(found, last_limit, awaited=True)

    def publish(self, plan: Plan) -> None:
        """Publish the plan to the other members."""
        if self._client is None:
            self._last = plan
            return
        waits = any(t.status is SplitStatus.PAUSED for t in plan.state.splits.values())
        report, drift = plan.member(), drift_in_force(self._max_drift, plan.observation.others)
        self._client.publish(report, waits=waits, apart=self.turns.members)
        self.turns.write(plan, report, self._client.member, self._local, drift)

    def named(self, state: GroupState) -> GroupState:
        """Return a state with the name of this member."""
        if not self._complete or self._client is None:
            return state
        return replace(state, member=self._client.member)

    def wait(self, seconds: float) -> None:
        """Wait; where the silence of another source begins or ends, only until then: the next status names it."""
        if self._client is None:
            time.sleep(seconds)
        else:
            self._client.wait(seconds)

    @property
    def place(self) -> str | None:
        """Where the sources of the group exchange watermarks, without secrets; ``None`` while it may hold one."""
        store = None if self._group is None else self._group.store
        if store in (None, DRIVER):
            return store or NO_STORE
        return None if self._client is None else self._client.location

    @property
    def trouble(self) -> str | None:
        """Return why the last known positions of the others may be old, or why others went ahead of this source."""
        return None if self._client is None else self._client.trouble or self.turns.trouble

    @property
    def own_silence(self) -> OwnSilence | None:
        """Return the last time in which this source reported nothing to the others."""
        return None if self._client is None else self._client.own_silence

    def close(self) -> None:
        """Report no more; takes no lock. The others wait for a source that has not finished for its time to live."""
        if self._local is not None:
            self._local.close()
        if self._client is not None:
            self._client.close()

    def _note_drift(self, others: OtherMembers, group: GroupOptions) -> None:
        """Log the max drift in force and its member whenever either changes."""
        own, drift = self._max_drift, drift_in_force(self._max_drift, others)
        if drift == self._drift or own is None or drift is None:
            return
        self._drift = drift
        if drift < own:
            _log.warning(
                "the max drift of the alignment group %s is %s, that of %s, which is the lowest of its members; this "
                "source has alignmentMaxDrift %s", group.name, format_duration(drift), others.drift_of,
                format_duration(own),
            )  # fmt: skip
        else:
            _log.warning(
                "the max drift of the alignment group %s is %s again, that of this source", group.name,
                format_duration(own),
            )  # fmt: skip

    def _is_alone(self, before: GroupState, group: GroupOptions) -> bool:
        waits_for_some = (group.members or 1) > 1
        if group.store != DRIVER or waits_for_some or self._here():
            return False
        # Those that it had met in this driver may be stopped, to start again.
        return before.member is None or not (driver_folder() / FILE).exists()

    def _here(self) -> int:
        return 0 if self._local is None else len(self._local.texts())

    def _join(self, before: GroupState, group: GroupOptions) -> None:
        here = group.store is None or group.store == DRIVER
        store = GroupStore(FileDatabase(str(driver_folder() / FILE))) if here else store_of(str(group.store))
        member = before.member or secrets.token_hex(6)
        identity = Identity(group.name, member, self._source_name, self._max_drift, group.time_to_live)
        self._client = HeartbeatClient(store, identity)
        self._began = time.monotonic()
        if self._last is not None:
            self.publish(self._last)
