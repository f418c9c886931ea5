"""What users look at: one status model (pure) and its views.

Imports ``checks``, ``clock``, ``durations``, ``errors``, ``option_table``, ``planning``.
"""
