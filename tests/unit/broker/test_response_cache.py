"""The cache of encoded responses: valid for one image, and bounded."""

from ottla.broker import response_cache
from ottla.broker.response_cache import ResponseCache
from ottla.metadata.image import MetadataImage
from ottla.protocol.frames import Encoded, RequestHeader, encode_response
from ottla.protocol.messages.metadata import MetadataResponse

VERSION = 12
ANSWER = Encoded(MetadataResponse(cluster_id="c"), VERSION)


def test_same_request_returns_the_same_bytes() -> None:
    kept, image = ResponseCache(), MetadataImage()
    assert kept.get(image, "all") is None
    kept.keep(image, "all", ANSWER)
    assert kept.get(image, "all") is ANSWER
    assert kept.get(image, "one") is None


def test_new_image_empties_the_cache() -> None:
    kept, old, new = ResponseCache(), MetadataImage(), MetadataImage()
    kept.keep(old, "all", ANSWER)
    assert kept.get(new, "all") is None
    kept.keep(new, "one", ANSWER)
    assert kept.get(new, "all") is None
    assert kept.get(old, "all") is None


def test_cache_memory_is_bounded() -> None:
    kept, image = ResponseCache(), MetadataImage()
    for number in range(3 * response_cache.MOST_ANSWERS):
        kept.keep(image, number, ANSWER)
        assert len(kept) <= response_cache.MOST_ANSWERS
    assert kept.get(image, 3 * response_cache.MOST_ANSWERS - 1) is ANSWER


def test_cached_response_is_framed_like_the_response() -> None:
    header = RequestHeader(3, VERSION, 42, None)
    fresh = b"".join(encode_response(header, MetadataResponse(cluster_id="c")))
    assert b"".join(encode_response(header, ANSWER)) == fresh
