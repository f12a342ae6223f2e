"""mpswatch: who shares this GPU through MPS, and do caps really shape throughput."""

__version__ = "0.1.0"
