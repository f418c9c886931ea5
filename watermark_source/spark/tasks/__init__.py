"""What runs in tasks, on executors: read a task, add columns, observe event time, report.

Imports ``columns``, ``connector``, ``exchange``, ``startup``.
"""
