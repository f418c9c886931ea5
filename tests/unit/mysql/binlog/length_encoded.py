"""Length-encoded numbers as MySQL writes them, of each length."""

from __future__ import annotations

NUMBERS = [
    (b"\0", 0),
    (b"\xfa", 250),
    (b"\xfc\xfb\0", 251),
    (b"\xfc\1\2", 0x201),
    (b"\xfd\1\2\3", 0x30201),
    (b"\xfe" + b"\1\2\3\4\5\6\7\x48", 0x4807_0605_0403_0201),
]
