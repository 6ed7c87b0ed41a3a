# CRC-32C of small data by a processor instruction, if there is one. A call of the library would take longer.
from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>
    #include <string.h>
    /* Clang 14 made a feature of its own of these instructions. */
    #if defined(__clang__) && __clang_major__ >= 14
    #define OTTLA_CRC_FEATURES "sse4.2,crc32"
    #else
    #define OTTLA_CRC_FEATURES "sse4.2"
    #endif
    static int ottla_computes_crc(void) { return __builtin_cpu_supports("sse4.2") != 0; }
    __attribute__((target(OTTLA_CRC_FEATURES)))
    static uint32_t ottla_crc32c(const uint8_t *data, Py_ssize_t size) {
        unsigned long long crc = 0xFFFFFFFFu, word;
        uint32_t rest;
        for (; size >= 8; data += 8, size -= 8) {
            memcpy(&word, data, 8);
            crc = _mm_crc32_u64(crc, word);
        }
        for (rest = (uint32_t)crc; size > 0; data++, size--) rest = _mm_crc32_u8(rest, *data);
        return ~rest;
    }
    #else
    static int ottla_computes_crc(void) { return 0; }
    static uint32_t ottla_crc32c(const uint8_t *data, Py_ssize_t size) { (void)data; (void)size; return 0; }
    #endif
    """
    bint ottla_computes_crc() nogil
    uint32_t ottla_crc32c(const uint8_t* data, Py_ssize_t size) nogil
