"""Operators of several streams, or of time, that Spark does not have: built on transformWithState.

Imports ``arrow_columns``, ``errors``, ``spark``.
"""
