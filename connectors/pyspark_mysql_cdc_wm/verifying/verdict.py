"""Verdict: whether a copy equals a table, and what differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from pyspark_mysql_cdc_wm.verifying.comparison import Difference


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a copy equals the server's table."""

    accepted: bool
    differences: tuple[Difference, ...]
    """Rows that differ, by the ranges of keys that have any; of the first twenty ranges. None by a certificate."""
    unexamined: tuple[str, ...]
    """The other ranges that differ."""
    summary: str
    """One sentence."""

    def report(self, out: TextIO) -> bool:
        """Write what differs and the summary, a line each; return whether the copy equals the table."""
        for difference in self.differences:
            out.write(f"{difference}\n")
        for piece in self.unexamined:
            out.write(f"{piece}: rows differ\n")
        out.write(f"{self.summary}\n")
        return self.accepted
