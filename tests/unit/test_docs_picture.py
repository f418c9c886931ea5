"""The picture of the README shows the numbers of a recorded run, which shows what the README claims."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from docs.images.two_partitions import PICTURE, Recording, Run, event_times, read_recording, svg

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def behind_the_watermark(of: Recording, run: Run) -> list[list[int]]:
    """By partition, the offsets of the rows that are not ahead of the watermark of their batch."""
    return [[n for n, ms in enumerate(times) if ms <= (run.watermark_of(n) or 0)] for times in of.event_times]


def not_written(of: Recording, run: Run) -> list[list[int]]:
    return [sorted(set(range(len(t))) - set(w)) for t, w in zip(of.event_times, run.written, strict=True)]


def test_the_picture_is_drawn_from_the_recorded_numbers() -> None:
    assert PICTURE.read_text(encoding="utf-8") == svg(read_recording()), "run: python docs/generate.py"
    assert [list(each) for each in read_recording().event_times] == event_times(), (
        "run: python -m docs.images.two_partitions"
    )


def test_the_rows_that_the_maximum_cut_off_are_those_behind_it_and_the_minimum_cut_off_none() -> None:
    of = read_recording()
    assert not_written(of, of.maximum) == behind_the_watermark(of, of.maximum)
    assert not_written(of, of.maximum)[1]
    assert not_written(of, of.minimum) == behind_the_watermark(of, of.minimum) == [[], []]


def test_the_text_beside_the_picture_has_its_numbers() -> None:
    of = read_recording()
    total = sum(map(len, of.event_times))
    (beside,) = re.findall(r"!\[([^\]]*)\]\(docs/images/two_partitions.svg\)", README)
    assert f"withWatermark drops {of.dropped(of.maximum)} of {total} rows, follow_watermark none" in beside.replace(
        "\n", " "
    )


def test_the_picture_describes_itself_and_follows_light_and_dark() -> None:
    root = ET.fromstring(PICTURE.read_text(encoding="utf-8"))
    title, style = (next(root.iter(f"{{http://www.w3.org/2000/svg}}{name}")).text or "" for name in ("title", "style"))
    assert root.get("role") == "img"
    assert f"drops {read_recording().dropped(read_recording().maximum)} of" in title
    light, dark = (set(re.findall(r"--\w+:", part)) for part in style.split("@media (prefers-color-scheme:dark)"))
    assert light == dark
