"""Ranges to rows, on executors. Imports ``client``, ``lookup``, ``options``, ``records``, ``snapshot``."""
