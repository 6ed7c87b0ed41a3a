"""Starts nodes as processes of this machine, for `ottla up` and `ottla format`.

Reading order: `settings` (options and files to the settings of a node), `storage` (its directories), `serve` (one node
until a signal), `local_nodes` and `supervise` (a cluster of several processes), `console` (log lines, announcement).
Nothing here imports click, which would take a third of the start time.
"""
