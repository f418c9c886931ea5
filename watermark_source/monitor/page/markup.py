"""Elements of HTML and SVG as text, in which every text from outside is escaped. Pure."""

from __future__ import annotations

import re
from html import escape
from typing import Final

from watermark_source.durations import unbroken

_WHOLE = re.compile(
    r"(?P<code>\.option\((?:[^()]|\([^()]*\))*\)|python -m watermark_source(?: [^\s,;]*[^\s,;.])+)|\b[\w.]{1,20}-\d+\b"
)
"""A line to write, or the name of a partition, in which no line of the page breaks."""
_VOID: Final = frozenset({"meta"})
_EMPTY: Final = frozenset({"rect", "line", "circle", "polyline", "polygon"})


class Markup(str):
    """A text that is markup already: no other text enters an element without being escaped."""

    __slots__ = ()


def tag(name: str, /, *content: str, **attributes: str | bool | None) -> Markup:
    """Return an element.

    Args:
        name: of the element.
        content: elements, and texts to be escaped.
        attributes: ``class_`` for ``class``, ``text_anchor`` for ``text-anchor``; ``None`` and ``False`` are left out,
            and ``True`` is an attribute without a value.
    """
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Markup(f"<{name}{shown}/>")
    return Markup(f"<{name}{shown}>" if name in _VOID else f"<{name}{shown}>{joined(*content)}</{name}>")


def joined(*content: str) -> Markup:
    """Return elements and texts one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in content))


def with_code(text: str) -> Markup:
    """Return a text in which lines to write, ``.option(…)`` and commands, are set as code, and no name is torn."""
    parts: list[str] = []
    end = 0
    for found in _WHOLE.finditer(text):
        whole = tag("code", found[0]) if found["code"] else tag("span", found[0], class_="name")
        parts += [unbroken(text[end : found.start()]), whole]
        end = found.end()
    return joined(*parts, unbroken(text[end:]))


def percent(share: float) -> str:
    """Return a share of the width, from 0 to 1, as SVG has it."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"
