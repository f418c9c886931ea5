"""What is fuzzed, by name; run as a program it lists the names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

SEEDS = Path(__file__).parent / "seeds"
"""Inputs to begin with, a folder a target; recorded from a real broker where there is one."""

COMPILED = ("decoder", "fetches", "mysql_binlog", "json_times", "header_times", "avro_times", "protobuf_times",
            "json_columns", "avro_columns", "protobuf_columns")  # fmt: skip
"""Targets that run compiled code: they are fuzzed as plain Python, and what was found is run again compiled."""
TARGETS = (*COMPILED, "mysql_places", "offsets", "reports", "settings")

Check = Callable[[bytes], str]
"""Runs one input and returns what came of it; whatever it raises is a finding."""


def check_of(target: str, *, interpreted: bool = False) -> Check:
    """Return a target's check; ``interpreted`` must come before anything of the connector is imported."""
    if interpreted:
        importlib.import_module("tests.soak.fuzz.interpreted")
    check: Check = importlib.import_module(f"tests.soak.fuzz.{target}").check
    return check


if __name__ == "__main__":
    sys.stdout.write(" ".join(TARGETS) + "\n")
