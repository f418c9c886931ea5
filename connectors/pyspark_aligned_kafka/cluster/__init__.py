"""Requests of the driver to the brokers, each within its time limit.

Imports ``client``.
"""
