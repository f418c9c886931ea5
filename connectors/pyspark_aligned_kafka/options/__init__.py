"""Options of the source and what they say: what to read, where to begin and to end. Imports ``client``, ``errors``."""
