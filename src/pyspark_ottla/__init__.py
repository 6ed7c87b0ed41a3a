"""Lets Spark find `format("ottla")`: it looks for DefaultSource in every installed package named pyspark_*."""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
