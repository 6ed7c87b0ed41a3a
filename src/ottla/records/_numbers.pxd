# What the compiled kernels write and hash: each includes these functions in its own code.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ (0 - (<uint64_t>value >> 63))


cdef inline Py_ssize_t size_of(int64_t value) noexcept nogil:
    """Bytes of a zigzag number."""
    cdef uint64_t rest = zigzag(value)
    cdef Py_ssize_t size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


cdef inline uint8_t* write_number(uint8_t* place, int64_t value) noexcept nogil:
    """Where to go on after a zigzag number."""
    cdef uint64_t rest = zigzag(value)
    while rest >= 0x80:
        place[0] = <uint8_t>(rest & 0x7F | 0x80)
        rest >>= 7
        place += 1
    place[0] = <uint8_t>rest
    return place + 1


cdef inline uint32_t hash_key(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    """Kafka's 32-bit MurmurHash2 with its seed."""
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>length
    cdef uint32_t k
    cdef const uint8_t* whole = data + (length & ~<Py_ssize_t>3)
    while data != whole:
        k = <uint32_t>data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        k = k * <uint32_t>0x5BD1E995
        k = (k ^ (k >> 24)) * <uint32_t>0x5BD1E995
        h = (h * <uint32_t>0x5BD1E995) ^ k
        data += 4
    length &= 3
    if length:
        if length == 3:
            h ^= <uint32_t>data[2] << 16
        if length >= 2:
            h ^= <uint32_t>data[1] << 8
        h ^= data[0]
        h = h * <uint32_t>0x5BD1E995
    h = (h ^ (h >> 13)) * <uint32_t>0x5BD1E995
    return h ^ (h >> 15)
