"""Settings of connectors: their definitions, and the answers of validation. See `definition`."""
