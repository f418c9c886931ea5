"""The source's process on the driver: ask the connector, let the planner decide, remember, report.

Imports ``columns``, ``connector``, ``exchange``, ``options``, ``startup``, ``tasks``.
"""
