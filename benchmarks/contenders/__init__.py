"""Python's Kafka clients, each doing the same work in its own file: `python -m benchmarks.contenders.NAME JSON`.

A contender has a function for each race that it can run, named as the race, which takes a `Task` and returns how many
records it moved. `run` measures the cost around it, in an interpreter of its own.
"""
