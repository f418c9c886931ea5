"""A reader of small fields in Python, for data that occurs once for a table, never for rows."""

from __future__ import annotations


class Scan:
    """A reading position in bytes; reading past their end raises ``IndexError``."""

    __slots__ = ("_at", "_content")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def at(self) -> int:
        """Bytes read so far."""
        return self._at

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._content) - self._at

    def skip(self, size: int) -> None:
        """Skip bytes."""
        self.take(size)

    def take(self, size: int) -> bytes:
        """Read bytes."""
        if size > self.left:
            raise IndexError(f"{size} bytes wanted, {self.left} left")
        self._at += size
        return self._content[self._at - size : self._at]

    def byte(self) -> int:
        """Read one byte."""
        return self.take(1)[0]

    def uint(self, size: int) -> int:
        """Read a little-endian number."""
        return int.from_bytes(self.take(size), "little")

    def lenenc(self) -> int:
        """Read a length-encoded integer."""
        first = self.byte()
        if first < 0xFB:
            return first
        if first not in _WIDTHS:
            raise ValueError(f"{first:#x} begins no length")
        return self.uint(_WIDTHS[first])


_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}
