"""The `ottla` command against running brokers."""
