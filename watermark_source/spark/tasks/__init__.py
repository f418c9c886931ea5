"""What runs in tasks, on executors: read ranges, add columns, observe event time, report.

Imports ``columns``, ``connector``, ``exchange``, ``startup``.
"""
