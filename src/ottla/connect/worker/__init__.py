"""Runs connectors and tasks in one process. See `runtime`."""
