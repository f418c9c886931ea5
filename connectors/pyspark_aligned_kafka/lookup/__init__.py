"""Which partitions there are, and which offsets positions mean.

Imports ``cluster``, ``errors``, ``options``.
"""
