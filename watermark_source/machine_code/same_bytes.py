"""Whether bytes at two places are the same, for compiled functions: eight at a time."""

from __future__ import annotations

from watermark_source.machine_code.native import Word, byte_at, inlined, word_at


@inlined
def same_bytes(data: Word, at: Word, other: Word, place: Word, size: Word) -> Word:
    """Return whether ``size`` bytes at ``data + at`` are those at ``other + place``."""
    done = 0
    while size - done >= 8:
        if word_at(data, at + done) != word_at(other, place + done):
            return False
        done += 8
    while done < size:
        if byte_at(data, at + done) != byte_at(other, place + done):
            return False
        done += 1
    return True
