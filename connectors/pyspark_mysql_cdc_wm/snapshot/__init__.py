"""What tables hold, and held at a place of the binlog. Imports ``client``, ``errors``, ``options``, ``records``."""
