"""Tests of third-party clients and of Ottla's clients against real broker processes."""
