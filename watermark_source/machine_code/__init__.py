"""Compiled code for the data paths of connectors: numba, kept between processes.

Imports nothing beside it.
"""
