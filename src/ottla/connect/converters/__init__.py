"""Converters between Connect's data and the bytes of keys, values and headers; see `api`."""
