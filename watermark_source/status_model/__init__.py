"""The status of a source, pure: what it has, its JSON, the sentences and advice about it, and when to warn.

Imports ``durations``, ``errors``, ``planning``, ``words``.
"""
