"""Ottla: Apache Kafka's little sister. See docs/ARCHITECTURE.md for the rooms of this package."""

__version__ = "0.1.0"
