"""A log in files and the runner processes that read it, for every test of this folder."""

from __future__ import annotations

from tests.unit.spark.runner_process import live, log

__all__ = ["live", "log"]
