"""Exports the kernels between record batches and columns. Only clients need them."""

from ottla.records._decode_columns import Columns, repeat_texts, whole_batches
from ottla.records._encode_columns import RowEncoder, Rows

__all__ = ["Columns", "RowEncoder", "Rows", "repeat_texts", "whole_batches"]
