"""The parts that simulations run on: clock, network, disk, broker and clients.

Each part takes its randomness from a seed, so that a failing run is repeated by its seed.
"""
