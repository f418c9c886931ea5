"""The process of a source on the driver: asks the connector, calls the planner, keeps state, publishes status.

Imports ``markers``, ``executor``, ``garbage_collector``, ``option_rows``, ``options``, ``read_tasks``,
``report_protocol``, ``unexamined_query``.
"""
