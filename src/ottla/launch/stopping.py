"""How the process of a node is asked to stop; the same for one node and for all nodes of a cluster on this machine."""

from typing import Final

ONE_REQUEST_S: Final = 0.5
"""Signals within this time count as one: `timeout` sends two, and a shell or `make` repeats the terminal's."""
SUPERVISED: Final = "OTTLA_SUPERVISED"
"""The environment variable that makes a node stop when its standard input ends."""
