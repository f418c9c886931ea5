"""Settings ``kafka.*`` and what they become in kafka-python: sizes, limits, logins, TLS.

Imports nothing beside it.
"""
