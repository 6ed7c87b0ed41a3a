"""Delta tables as sinks, exactly once."""
