"""The status of sources (a pure model), its views and metrics, and the command line's doctor and profile.

Imports ``checks``, ``clock``, ``connection_deadline``, ``durations``, ``errors``, ``installation``, ``option_table``,
``planning``, ``supported_spark``, ``words``.
"""
