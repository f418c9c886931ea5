"""A path into a JSON document: names of members from the outermost object inwards."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_NAME = re.compile(r"\.([^.\[\]'\"\s]+)")
_QUOTED = re.compile(r"\[('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\]")
ACCEPTED = "must begin with $ and name members, $.a.b or $['a']['b']; elements of arrays cannot be chosen"


@dataclass(frozen=True, slots=True)
class JsonPath:
    """Members of nested objects; with none the document itself."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return "$" + "".join(
            f".{name}" if _NAME.fullmatch(f".{name}") else f"[{json.dumps(name, ensure_ascii=False)}]"
            for name in self.names
        )

    def as_bytes(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return the names one behind the other in UTF-8, and where each ends."""
        encoded = [name.encode() for name in self.names]
        # Compiled code takes the address of an array that has no byte, too.
        text = np.frombuffer(bytearray(b"".join(encoded) or b"\0"), np.uint8)
        return text, np.cumsum([len(name) for name in encoded], dtype=np.int64)


def parse_path(text: str) -> JsonPath:
    """Read a path as JSONPath writes them (RFC 9535), as far as it names members.

    Raises:
        ValueError: it is no such path.
    """
    if not text.startswith("$"):
        raise ValueError(ACCEPTED)
    names: list[str] = []
    at = 1
    while at < len(text):
        if found := _NAME.match(text, at):
            names.append(found[1])
        elif found := _QUOTED.match(text, at):
            names.append(_unquoted(found[1]))
        else:
            raise ValueError(ACCEPTED)
        at = found.end()
    return JsonPath(tuple(names))


def _unquoted(text: str) -> str:
    if text[0] == "'":
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    found: str = json.loads(text)
    return found
