"""What runs in tasks, on executors: read a pack, add columns, observe event time, report.

Imports ``columns``, ``connector``, ``exchange``, ``startup``.
"""
