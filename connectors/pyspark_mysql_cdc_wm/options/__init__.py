"""What to read, and where to begin; options before anything is connected. Imports ``binlog``, ``client``."""
