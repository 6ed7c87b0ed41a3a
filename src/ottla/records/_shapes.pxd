# The structure of one record, for the compiled kernels: each includes these functions in its own code.
#
# They read nothing outside data[position:end] and promise what `_kernels_fallback._shape` promises.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

# What is known of a record after one pass over its fixed part. Null fields have a negative size.
ctypedef struct Shape:
    Py_ssize_t begin
    Py_ssize_t body
    Py_ssize_t after_timestamp
    Py_ssize_t end
    int64_t timestamp_delta
    int32_t offset_delta
    Py_ssize_t key
    Py_ssize_t key_size
    Py_ssize_t value
    Py_ssize_t value_size
    int32_t header_count
    Py_ssize_t headers


cdef inline Py_ssize_t read_number(
    const uint8_t* data, Py_ssize_t position, Py_ssize_t end, int bits, int64_t* out
) noexcept nogil:
    """Zigzag number at `position` into `out`; the position after it, -1 if there is none."""
    cdef uint64_t result = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if position >= end:
            return -1
        byte = data[position]
        position += 1
        result |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits + 3:
            return -1
    if bits == 32:
        result = <uint32_t>result
    out[0] = <int64_t>((result >> 1) ^ (0 - (result & 1)))
    return position


cdef inline bint read_shape(const uint8_t* data, Py_ssize_t position, Py_ssize_t end, Shape* s) noexcept nogil:
    """One record up to its headers; false if it is malformed."""
    cdef int64_t number = 0
    s.begin = position
    position = read_number(data, position, end, 32, &number)
    if position < 0 or number <= 0 or number > end - position:
        return False
    end = position + number
    s.body = position
    s.end = end
    position = read_number(data, position + 1, end, 64, &s.timestamp_delta)
    if position < 0:
        return False
    s.after_timestamp = position
    position = read_number(data, position, end, 32, &number)
    if position < 0:
        return False
    s.offset_delta = <int32_t>number
    position = read_number(data, position, end, 32, &number)
    if position < 0 or number > end - position:
        return False
    s.key = position
    s.key_size = number
    if number > 0:
        position += number
    position = read_number(data, position, end, 32, &number)
    if position < 0 or number > end - position:
        return False
    s.value = position
    s.value_size = number
    if number > 0:
        position += number
    position = read_number(data, position, end, 32, &number)
    if position < 0 or number < 0 or number > (end - position) >> 1:
        return False
    s.header_count = <int32_t>number
    s.headers = position
    return True


cdef inline bint headers_are_sound(
    const uint8_t* data, Py_ssize_t position, Py_ssize_t end, int32_t count
) noexcept nogil:
    """Whether the headers of a record fill it to its end."""
    cdef int64_t number = 0
    cdef int32_t _
    for _ in range(count):
        position = read_number(data, position, end, 32, &number)
        if position < 0 or number < 0 or number > end - position:
            return False
        position = read_number(data, position + number, end, 32, &number)
        if position < 0 or number > end - position:
            return False
        if number > 0:
            position += number
    return position == end


cdef inline bint read_record(const uint8_t* data, Py_ssize_t position, Py_ssize_t end, Shape* s) noexcept nogil:
    """One record, its headers' structure checked too; false if it is malformed."""
    if not read_shape(data, position, end, s):
        return False
    return s.headers == s.end if s.header_count == 0 else headers_are_sound(data, s.headers, s.end, s.header_count)


cdef inline Py_ssize_t read_short(const uint8_t* data, Py_ssize_t position, uint32_t* out) noexcept nogil:
    """The zigzag of at most three bytes, all within the data, into `out`, all ones if it is longer; where it ends."""
    cdef uint32_t first = data[position]
    cdef uint32_t second, third
    if first < 0x80:
        out[0] = first
        return position + 1
    second = data[position + 1]
    if second < 0x80:
        out[0] = first & 0x7F | second << 7
        return position + 2
    third = data[position + 2]
    out[0] = first & 0x7F | (second & 0x7F) << 7 | third << 14 if third < 0x80 else <uint32_t>0xFFFFFFFF
    return position + 3


cdef inline bint read_usual(const uint8_t* data, Py_ssize_t position, Py_ssize_t end, Shape* s) noexcept nogil:
    """`read_record` at half the price, for a record of short numbers. False only says: ask `read_record`.

    Walking from record to record is waiting for one length after the other, with little to compute meanwhile. So this
    asks for bounds as rarely as it can, and `s` must stay in registers: give it to nothing that is not inlined.
    """
    cdef uint32_t number = 0
    if end - position < 3:
        return False
    s.begin = position
    s.body = position = read_short(data, position, &number)
    if number & 1 or number < 2 * 10 or (number >> 1) > end - position:
        return False
    # Ten bytes are those of the attributes and of three numbers.
    s.end = end = position + (number >> 1)
    s.after_timestamp = position = read_short(data, position + 1, &number)
    if number >> 21:
        return False
    s.timestamp_delta = <int32_t>(number >> 1) ^ -<int32_t>(number & 1)
    position = read_short(data, position, &number)
    if number >> 21:
        return False
    s.offset_delta = <int32_t>(number >> 1) ^ -<int32_t>(number & 1)
    s.key = position = read_short(data, position, &number)
    if number == 1:
        s.key_size = -1
    elif number & 1:
        return False
    else:
        s.key_size = number >> 1
        position += s.key_size
    if end - position < 4:
        return False
    s.value = position = read_short(data, position, &number)
    s.value_size = number >> 1
    if number & 1 or s.value_size >= end - position:
        return False
    position += s.value_size
    s.header_count = data[position] >> 1
    s.headers = position + 1
    if data[position] == 0:
        return s.headers == end
    return not data[position] & 0x81 and headers_are_sound(data, s.headers, end, s.header_count)
