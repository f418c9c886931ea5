"""Which partitions there are, and which offsets positions mean.

Imports ``client``, ``cluster``, ``errors``, ``options``.
"""
