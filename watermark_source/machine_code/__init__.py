"""Compiled code for the data paths of connectors: numba, with a cache on disk.

Imports nothing beside it.
"""
