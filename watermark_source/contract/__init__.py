"""What a connector implements: protocols for splits, ends, range readers, batch reads, and optional ones.

Imports ``arrow_columns``, ``errors``, ``planning``, ``words``.
"""
