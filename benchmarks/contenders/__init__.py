"""Python's Kafka clients, each doing the same work in its own file: `python -m benchmarks.contenders.NAME JSON`.

A contender has a function for each race that it can run, named as the race, which takes a `Task` and returns how many
records it moved. What it costs is measured around it by `run`, in an interpreter of its own.
"""
