"""What tables held at a place of the binlog. Imports ``client``, ``errors``, ``lookup``, ``options``, ``records``."""
