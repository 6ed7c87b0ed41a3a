"""Answers kept in bytes: found again in the same image, gone with the next one, bounded."""

from ottla.broker import response_cache
from ottla.broker.response_cache import ResponseCache
from ottla.metadata.image import MetadataImage
from ottla.protocol.frames import Encoded, RequestHeader, encode_response
from ottla.protocol.messages.metadata import MetadataResponse

VERSION = 12
ANSWER = Encoded(MetadataResponse(cluster_id="c"), VERSION)


def test_the_same_question_gets_the_same_bytes() -> None:
    kept, image = ResponseCache(), MetadataImage()
    assert kept.get(image, "all") is None
    kept.keep(image, "all", ANSWER)
    assert kept.get(image, "all") is ANSWER
    assert kept.get(image, "one") is None


def test_no_answer_outlives_its_image() -> None:
    kept, old, new = ResponseCache(), MetadataImage(), MetadataImage()
    kept.keep(old, "all", ANSWER)
    assert kept.get(new, "all") is None
    kept.keep(new, "one", ANSWER)
    assert kept.get(new, "all") is None
    assert kept.get(old, "all") is None


def test_many_different_questions_do_not_fill_the_memory() -> None:
    kept, image = ResponseCache(), MetadataImage()
    for number in range(3 * response_cache.MOST_ANSWERS):
        kept.keep(image, number, ANSWER)
        assert len(kept) <= response_cache.MOST_ANSWERS
    assert kept.get(image, 3 * response_cache.MOST_ANSWERS - 1) is ANSWER


def test_cached_response_is_framed_like_the_response() -> None:
    header = RequestHeader(3, VERSION, 42, None)
    fresh = b"".join(encode_response(header, MetadataResponse(cluster_id="c")))
    assert b"".join(encode_response(header, ANSWER)) == fresh
