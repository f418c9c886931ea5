"""Tasks on executors: read ranges, add columns, observe event time, report it to the driver.

Imports ``column_names``, ``garbage_collector``, ``markers``, ``read_tasks``, ``report_protocol``.
"""
