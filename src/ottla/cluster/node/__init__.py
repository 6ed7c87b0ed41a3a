"""The parts that `broker/server.py` starts one after another, for each role of the node.

directories: log directories and their identity; registration: what the broker tells the controller; bootstrap: the
address that is printed.
"""
