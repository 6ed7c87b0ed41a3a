"""Coordinators: cores that live on a partition of an internal topic and rebuild themselves from its log."""
