"""Operators on event time that Spark lacks, built on transformWithState: a temporal join, and an ordering of rows.

Imports ``arrow_columns``, ``errors``, ``grouping``, ``planning``, ``spark``, ``words``.
"""
