"""Views of running queries: page, terminal, metrics, ``why`` and ``why_open``; and the doctor and the profile.

What runs in a query's driver or tasks does not import it, but ``status_model`` alone: a test holds it to it.

Imports ``checks``, ``clock``, ``connection_deadline``, ``durations``, ``errors``, ``group_store``, ``installation``,
``local_path``, ``option_table``, ``planning``, ``publishing``, ``spark``, ``status_model``, ``supported_spark``,
``words``.
"""
