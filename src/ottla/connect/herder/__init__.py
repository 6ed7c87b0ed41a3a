"""Decides which connectors and tasks run, and with which configurations."""
