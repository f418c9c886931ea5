"""PURE: alignment group arithmetic, limits, who holds whom back. No I/O, no clock."""
