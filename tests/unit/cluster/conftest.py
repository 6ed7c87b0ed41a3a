"""Fixtures for tests that need a whole node."""

from tests.unit.broker.conftest import harness

__all__ = ["harness"]
