"""A buffer may be reused only while nothing but the pool refers to it."""

from __future__ import annotations

from ottla.common.references import is_free


def test_buffer_is_free_until_it_is_referenced_and_after_that() -> None:
    pool = [bytearray(8), bytearray(8)]
    assert is_free(pool, 0)
    buffer = pool[0]
    assert not is_free(pool, 0)
    assert is_free(pool, 1)
    del buffer
    assert is_free(pool, 0)


def test_views_of_a_buffer_are_references_as_long_as_they_exist() -> None:
    pool = [bytearray(8)]
    view = memoryview(pool[0])
    part = view[2:4]
    assert not is_free(pool, 0)
    view.release()
    del view
    assert not is_free(pool, 0)
    part.release()
    del part
    assert is_free(pool, 0)


def test_another_collection_with_the_buffer_is_a_reference() -> None:
    pool = [bytearray(8)]
    others = {"name": pool[0]}
    assert not is_free(pool, 0)
    others.clear()
    assert is_free(pool, 0)
