"""A path into a JSON document: names of members, and places in arrays, from the outermost value inwards."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_NAME = re.compile(r"\.([^.\[\]'\"\s]+)")
_QUOTED = re.compile(r"\[('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\]")
_ELEMENT = re.compile(r"\[(0|[1-9][0-9]{0,8})\]")
ACCEPTED = (
    "must begin with $ and name members, $.a.b or $['a']['b'], or elements of arrays by their numbers from 0, $.a[0].b"
)


@dataclass(frozen=True, slots=True)
class JsonPath:
    """Members of nested objects, and elements of arrays; with none the document itself."""

    steps: tuple[str | int, ...]
    """Names of members, and numbers of elements from 0."""

    def __str__(self) -> str:
        return "$" + "".join(
            f".{step}"
            if isinstance(step, str) and _NAME.fullmatch(f".{step}")
            else f"[{json.dumps(step, ensure_ascii=False)}]"
            for step in self.steps
        )


def parse_path(text: str) -> JsonPath:
    """Read a path as JSONPath writes them (RFC 9535), as far as it names members and elements by their numbers.

    Raises:
        ValueError: it is no such path.
    """
    if not text.startswith("$"):
        raise ValueError(ACCEPTED)
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        if found := _NAME.match(text, at):
            steps.append(found[1])
        elif found := _QUOTED.match(text, at):
            steps.append(_unquoted(found[1]))
        elif found := _ELEMENT.match(text, at):
            steps.append(int(found[1]))
        else:
            raise ValueError(ACCEPTED)
        at = found.end()
    return JsonPath(tuple(steps))


def _unquoted(text: str) -> str:
    if text[0] == "'":
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    found: str = json.loads(text)
    try:
        found.encode()
    except UnicodeEncodeError:
        raise ValueError("has half of a pair of surrogates, which no name has in UTF-8") from None
    return found
