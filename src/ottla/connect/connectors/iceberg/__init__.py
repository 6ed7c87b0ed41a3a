"""Iceberg tables as sinks, exactly once."""
