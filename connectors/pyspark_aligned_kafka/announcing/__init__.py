"""Announced watermarks of a topic's writers: they are written, listed and audited here; readers follow them.

``audit`` compares a topic with what its writers announced, also in tests of users.

Imports ``client``, ``cluster``, ``lookup``, ``options``, ``source``.
"""

from __future__ import annotations

from pyspark_aligned_kafka.announcing.audit import Audit, BrokenPromise, audit

__all__ = ["Audit", "BrokenPromise", "audit"]
