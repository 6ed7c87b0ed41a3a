"""Scenarios as text: commands and the effects that they must have. The README explains the format."""
