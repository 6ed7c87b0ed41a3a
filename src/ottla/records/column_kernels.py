"""The kernels between record batches and columns, chosen as `kernels` chooses the others. No broker needs them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.records._decode_columns_fallback import Columns, repeat_texts, whole_batches
    from ottla.records._encode_columns_fallback import RowEncoder, Rows
else:
    from ottla.records.kernels import choose

    _decode, _encode = choose("_decode_columns"), choose("_encode_columns")
    Columns, repeat_texts, whole_batches = _decode.Columns, _decode.repeat_texts, _decode.whole_batches
    RowEncoder, Rows = _encode.RowEncoder, _encode.Rows

__all__ = ["Columns", "RowEncoder", "Rows", "repeat_texts", "whole_batches"]
