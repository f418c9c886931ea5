"""In which order brokers are asked what any of them can tell."""

from __future__ import annotations

import random
import time
from typing import Any

from kafka.net.manager import KafkaConnectionManager

_SILENT_SECONDS = 60.0
"""So long one that did not answer is asked last."""
_BEFORE_BOOTSTRAP = 2
"""So many known brokers are asked before the bootstrap servers: where two are silent, all may have moved (KIP-899)."""


class BrokerOrder:
    """Connected ones first, bootstrap servers after two others; at last who was silent lately, and who is doubted."""

    def __init__(self) -> None:
        self._silent_at: dict[int | str, float] = {}
        """Brokers that did not answer while others could be asked, and when, by ``time.monotonic()``."""

    def note_silent(self, node: int | str) -> None:
        """Take in that a broker did not answer while others can be asked."""
        self._silent_at[node] = time.monotonic()

    def of(self, manager: KafkaConnectionManager, *, anyone: bool, doubted: int | None = None) -> list[Any]:
        """Return the brokers that a cluster's connections know. With ``anyone`` connected ones do not come first."""
        known = list(manager.cluster.brokers())
        random.shuffle(known)
        if not anyone:
            first = manager.least_loaded_node()
            known.sort(key=lambda broker: broker.node_id != first)
        silent = {node for node, at in self._silent_at.items() if time.monotonic() - at < _SILENT_SECONDS}

        def turn(broker: Any) -> tuple[bool, bool]:
            return broker.node_id == doubted, broker.node_id in silent

        known.sort(key=turn)
        asked = [*known[:_BEFORE_BOOTSTRAP], *manager.cluster.bootstrap_brokers(), *known[_BEFORE_BOOTSTRAP:]]
        return sorted(asked, key=turn)
