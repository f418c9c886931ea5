"""What a connector implements: protocols for splits, ends, reads and what only some systems have.

Imports ``arrow_columns``, ``planning``.
"""
