"""Third-party clients against a real broker process: they prove that the wire is Kafka's."""
