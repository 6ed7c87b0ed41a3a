"""Tests of `ottla mcp`."""
