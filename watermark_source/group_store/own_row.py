"""The row by which a source is a member of its group: one process at a time writes it."""

from __future__ import annotations

import logging
import secrets

from watermark_source.alignment.group import GroupMember, other_drift
from watermark_source.clock import Clock
from watermark_source.eventtime.watermark import Millis
from watermark_source.group_store.member_exchange import Answer, GroupStore, Identity

_log = logging.getLogger(__name__)


class OwnRow:
    """Written by the thread that talks to the store."""

    def __init__(self, store: GroupStore, who: Identity) -> None:
        self._store = store
        self._who = who._replace(writer=secrets.token_hex(8))
        self._clock = Clock()
        self._is_ours = False
        """Whether this process has written it."""
        self._spoke_at: Millis | None = None

    @property
    def who(self) -> Identity:
        """Whose row it is: another member's when it turns out that two processes have the first."""
        return self._who

    @property
    def place(self) -> str:
        """Where it is, without what is secret."""
        return self._store.shown

    def join(self) -> bool:
        """Join the group; return whether members with another drift are there that have been silent for too long.

        Raises:
            UsageError: the group has another drift.
        """
        return self._store.join(self._who)

    def was_out(self) -> bool:
        """Whether the others may have gone on without this one, and with another drift: it comes as if it were new."""
        return self._spoke_at is not None and self._clock.now() - self._spoke_at > self._who.time_to_live

    def exchange(self, report: GroupMember | None) -> Answer:
        """Write what this source has come to, and return what the others have.

        Raises:
            UsageError: the group has another drift.
        """
        spoke_at = self._clock.now()
        while (answer := self._store.exchange(self._who, report, takes_over=not self._is_ours)) is None:
            self._take_another_name()
        self._is_ours, self._spoke_at = True, spoke_at
        if answer.drift is not None and self._who.max_drift not in (None, answer.drift):
            # They came at once, and neither saw the other when it looked.
            raise other_drift(self._who.source, self._who.max_drift or 0, self._who.group, answer.drift)
        return answer

    def leave(self) -> None:
        """Leave the group and the store."""
        try:
            self._store.leave(self._who)
        except Exception as trouble:  # noqa: BLE001 - as while it was there, and nobody is left to be told
            _log.debug("left the alignment group without a word: %s", trouble)
        finally:
            self._store.close()

    def _take_another_name(self) -> None:
        """Leave the row to the process that has taken it: both go by the checkpoint that one has copied."""
        self._who = self._who._replace(member=secrets.token_hex(6))
        self._is_ours = False
        _log.warning(
            "another process goes by this source's name in the alignment group %s, as after a copy of a checkpoint; it "
            "takes another one", self._who.group,
        )  # fmt: skip
