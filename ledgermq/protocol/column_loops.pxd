# C types for column_loops.py.

cimport cython
from libc.string cimport memchr, memcpy

cdef bint _IS_C
cdef Py_ssize_t _FIXED_BYTES, _V6_BYTES, _PAIRS_MAX, _BYTES_MAX
cdef long long _MAGIC, _MAGIC_V2, _BORN_V6, _STORE_V6, _SIGN_32
cdef unsigned long long _SIGN_64
cdef int _EQUALS, _SEPARATOR
cdef bytes _TAGS, _KEYS, _UNIQUE

cdef inline Py_ssize_t find_byte(
    const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t stop, int byte
) noexcept:
    # A place from `at` on; `stop` where there is none. at < stop <= len(d).
    cdef const unsigned char* first = &d[at]
    cdef const void* found = memchr(first, byte, stop - at)
    if found == NULL:
        return stop
    return at + (<const unsigned char*> found - first)

cdef inline void copy_bytes(
    unsigned char* out, Py_ssize_t out_at, const unsigned char[::1] d, Py_ssize_t at,
    Py_ssize_t stop
) noexcept:
    memcpy(out + out_at, &d[at], stop - at)

@cython.locals(
    d="const unsigned char[::1]", out="long long[::1]", end=Py_ssize_t, room=Py_ssize_t,
    at=Py_ssize_t, count=Py_ssize_t, size="long long",
)
cpdef tuple find_records(object data, object starts)

@cython.locals(
    d="const unsigned char[::1]", s="const long long[::1]", w="long long[::1]", n="int[::1]",
    total=Py_ssize_t, count=Py_ssize_t, i=Py_ssize_t, at="long long", size="long long",
    stop="long long", flags="long long", magic="long long", store_at="long long",
    tail_at="long long", body_at="long long", body_bytes="long long", topic_at="long long",
    topic_bytes="long long", topic_end="long long",
)
cpdef bint read_fields(object data, object starts, object wide, object narrow) except -1

@cython.locals(
    d="const unsigned char[::1]", b="const long long[::1]", e="const long long[::1]",
    p="long long[::1]", total=Py_ssize_t, count=Py_ssize_t, i=Py_ssize_t, at="long long",
    stop="long long", end="long long", first=int, tags_at="long long", tags_end="long long",
    keys_at="long long", keys_end="long long", unique_at="long long", unique_end="long long",
)
cpdef bint find_named(object data, object begins, object ends, object places) except -1

@cython.locals(
    d="const unsigned char[::1]", b="const long long[::1]", e="const long long[::1]",
    n="int[::1]", p="long long[::1]", total=Py_ssize_t, count=Py_ssize_t, room=Py_ssize_t,
    i=Py_ssize_t, k=Py_ssize_t, row_first=Py_ssize_t, other=Py_ssize_t, at="long long",
    stop="long long", end="long long", equals="long long",
)
cpdef Py_ssize_t find_pairs(
    object data, object begins, object ends, object borders, object places
) except -2

@cython.locals(
    d="const unsigned char[::1]", b="const long long[::1]", e="const long long[::1]",
    n="int[::1]", total=Py_ssize_t, count=Py_ssize_t, i=Py_ssize_t, size="long long",
    room=object, out="unsigned char*", at=Py_ssize_t,
)
cpdef bytes copy_parts(object data, object begins, object ends, object borders)

@cython.locals(t="const unsigned char*", i=Py_ssize_t)
cdef bint _has(
    const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t stop, bytes text, Py_ssize_t count
) noexcept

@cython.locals(i=Py_ssize_t)
cdef bint _are_equal(
    const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t other
) noexcept

@cython.locals(found=Py_ssize_t, place=Py_ssize_t)
cdef Py_ssize_t _find(
    const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t stop, int byte
) noexcept

@cython.locals(value="unsigned long long")
cdef long long _u32(const unsigned char[::1] d, Py_ssize_t at) noexcept
cdef long long _i32(const unsigned char[::1] d, Py_ssize_t at) noexcept
@cython.locals(value="unsigned long long")
cdef long long _i64(const unsigned char[::1] d, Py_ssize_t at) noexcept
