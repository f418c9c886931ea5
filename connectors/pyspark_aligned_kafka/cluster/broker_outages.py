"""Brokers that do not answer: the log has a line when one goes, one a minute, and one when it is back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from watermark_source.durations import format_duration

_log = logging.getLogger(__name__)

_AGAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Outage:
    """A broker that does not answer; times are seconds of the monotonic clock."""

    since: float
    logged: float

    def is_due(self, now: float) -> bool:
        """Return whether another line is due."""
        return now - self.logged >= _AGAIN_SECONDS


class BrokerOutages:
    """Of one process: its connections to a broker share what they know of it. Called from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._outages: dict[str, Outage] = {}
        self._worked: set[str] = set()

    def has_worked(self, address: str) -> bool:
        """Return whether a broker has answered at this address in this process."""
        return address in self._worked

    def note_answer(self, address: str) -> None:
        """Note that a broker has answered."""
        if address in self._worked and not self._outages:
            return
        with self._lock:
            self._worked.add(address)
            outage = self._outages.pop(address, None)
        if outage is not None:
            _log.warning(
                "Kafka broker %s answers again, after %s", address, format_duration(self._millis(outage.since))
            )

    def note_failure(self, address: str, why: str) -> None:
        """Note that a broker could not be connected to, or did not answer."""
        now = self._clock()
        with self._lock:
            outage = self._outages.get(address)
            if outage is not None and not outage.is_due(now):
                return
            self._outages[address] = Outage(now, now) if outage is None else replace(outage, logged=now)
        if outage is None:
            advice = "" if address in self._worked else "; check kafka.bootstrap.servers and advertised.listeners"
            _log.warning("Kafka broker %s does not answer: %s; it is tried again%s", address, why, advice)
        else:
            _log.warning(
                "Kafka broker %s has not answered for %s: %s", address, format_duration(self._millis(outage.since)), why
            )

    def _millis(self, since: float) -> int:
        return round((self._clock() - since) * 1_000)


OUTAGES = BrokerOutages()
