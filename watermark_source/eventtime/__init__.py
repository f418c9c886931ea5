"""PURE: the watermark value, how it follows event times, and how many become one. No I/O, no clock."""
