"""What driver and tasks send each other: tasks of work out, progress reports back.

Imports ``columns``, ``connector``.
"""
