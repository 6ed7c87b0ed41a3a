"""Side by side with stock Apache Kafka on this machine: `make bench`, or `make bench RACE=produce`."""
