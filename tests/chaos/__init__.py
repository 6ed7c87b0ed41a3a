"""Real processes that are killed, stopped and starved."""
