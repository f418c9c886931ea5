"""What driver and tasks send each other: packs of work out, progress reports back.

Imports ``columns``, ``connector``.
"""
