"""What a connector implements: protocols for splits, ends, range readers, batch reads and optional abilities.

Imports ``arrow_columns``, ``errors``, ``planning``.
"""
