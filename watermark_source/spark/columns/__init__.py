"""The columns that every stream has beside its system's own: names, markers, what they declare.

Imports ``options``.
"""
