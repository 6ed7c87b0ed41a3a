"""Elasticsearch and OpenSearch as sinks."""
