"""Builds the optional compiled kernels; without a compiler the pure fallback serves."""

from setuptools import setup

setup()
