"""Fields of Kafka's protocol, to bytes and from them: counts, texts, and tagged fields.

In the ``flexible`` versions of a message (KIP-482) lengths are compact, and every structure ends with tagged fields.
"""

from __future__ import annotations

import struct
from typing import Final

_VARINT_BITS: Final = 70
"""Ten bytes of seven: more than any number of the protocol takes."""
SHORT = struct.Struct(">h")
INT = struct.Struct(">i")


def count(number: int, *, flexible: bool) -> bytes:
    """Return what precedes so many entries of an array."""
    return _varint(number + 1) if flexible else INT.pack(number)


def text(content: str, *, flexible: bool) -> bytes:
    """Return a text behind its length."""
    data = content.encode()
    return (_varint(len(data) + 1) if flexible else SHORT.pack(len(data))) + data


def no_tags(*, flexible: bool) -> bytes:
    """Return the end of a structure without tagged fields."""
    return b"\0" if flexible else b""


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


class FieldReader:
    """Reads fields, one after the other; bytes that are none raise ``struct.error``, ``IndexError`` or ``ValueError``.

    ``UnicodeDecodeError`` is a ``ValueError``.
    """

    __slots__ = ("at", "flexible", "view")

    def __init__(self, data: bytes | memoryview, *, flexible: bool, at: int = 0) -> None:
        self.view = memoryview(data)
        self.flexible = flexible
        self.at = at

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read numbers."""
        values = layout.unpack_from(self.view, self.at)
        self.at += layout.size
        return values

    def integer(self) -> int:
        """Read a number of 32 bits."""
        return self.unpack(INT)[0]

    def count(self) -> int:
        """Read how many entries an array has; -1 for none."""
        return self._varint() - 1 if self.flexible else self.integer()

    def text(self) -> str:
        """Read a text that is there."""
        return bytes(self.take(self._varint() - 1 if self.flexible else self.unpack(SHORT)[0])).decode()

    def take(self, size: int) -> memoryview:
        """Read bytes."""
        if not 0 <= size <= len(self.view) - self.at:
            # Reading bytes again would yield any number of topics.
            raise struct.error(f"{size} bytes, {len(self.view) - self.at} left")
        self.at += size
        return self.view[self.at - size : self.at]

    def skip_tags(self) -> None:
        """Skip fields that later brokers may add to any structure."""
        if self.flexible:
            for _ in range(self._varint()):
                self._varint()
                self.take(self._varint())

    def _varint(self) -> int:
        number, shift = 0, 0
        while True:
            byte = self.view[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte <= 0x7F:
                return number
            shift += 7
            if shift == _VARINT_BITS:
                # Without an end, as many bytes as the response has would make one number, in quadratic time.
                raise ValueError("a number of more than ten bytes")
