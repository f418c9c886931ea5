"""Compiled code for the data paths of connectors: built with a package, or by numba, with a cache on disk.

Imports ``errors``, ``installation``.
"""
