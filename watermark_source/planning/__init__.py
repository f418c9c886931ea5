"""Pure: splits, strategies, the combined watermark, idleness, alignment, the planner and the offset codec.

No I/O and no clock: the time is an argument.

Imports ``durations``, ``errors``, ``grouping``.
"""
