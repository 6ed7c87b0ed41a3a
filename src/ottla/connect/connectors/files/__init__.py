"""Files as sources and sinks: local directories and S3."""
