"""Settings ``kafka.*`` and what they become in kafka-python: sizes, limits, logins, TLS; schema registries.

Imports nothing beside it.
"""
