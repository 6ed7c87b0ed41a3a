"""Single message transformations and predicates, by Kafka Connect's names."""
