"""A measured figure, the table of all, and their JSON."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value beside its target; a target is met from its side on."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    detail: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; ``None`` without one."""
        if self.at_least is not None:
            return self.value >= self.at_least
        if self.at_most is not None:
            return self.value <= self.at_most
        return None


def ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Return the median of the ratios run by run: both were taken in turn, so the machine's drift cancels out."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return minimum, median and maximum as text."""
    return " / ".join(f"{v:.{digits}f}" for v in (min(values), statistics.median(values), max(values)))


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as a readable table."""
    rows = [("figure", "measured", "target", "", "detail")]
    for f in figures:
        target = f"≥ {f.at_least:g}" if f.at_least is not None else f"≤ {f.at_most:g}" if f.at_most is not None else ""
        verdict = {True: "ok", False: "SHORT", None: ""}[f.holds]
        rows.append((f.name, f"{f.value:,.3g} {f.unit}".strip(), target, verdict, f.detail))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def save(figures: Sequence[Figure], path: Path) -> None:
    """Write the figures as JSON, with what is known of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "system": platform.platform()}
    body = {"machine": machine, "figures": [{**asdict(f), "holds": f.holds} for f in figures]}
    path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")
