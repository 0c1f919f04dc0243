# C types for entry_loops.py.

cimport cython

cdef Py_ssize_t _HEAD, _COVERED, _CHAINED, _STAMP_BYTES
cdef long long _MAGIC, _SIGN_32
cdef unsigned long long _SIGN_64

@cython.locals(
    starts=list, d="unsigned char*", chained=bytearray, c="unsigned char*", total=Py_ssize_t,
    start=Py_ssize_t, body=object, body_bytes=Py_ssize_t, size=Py_ssize_t, at="long long",
    body_crc="long long", i=int,
)
cpdef tuple fill_heads(
    bytearray data, object bodies, long long index, long long term, long long position,
    long long chain_crc, Py_ssize_t stamp_offset, object crc32c
)

@cython.locals(
    starts=list, d="const unsigned char[::1]",
    chained=bytearray, c="unsigned char*", total=Py_ssize_t, start=Py_ssize_t,
    end=Py_ssize_t, size="long long", at_term="long long", chain="long long",
    body_crc="long long", unfilled=Py_ssize_t, i=int,
)
cpdef object walk_entries(
    object data, long long index, long long term, long long position, long long chain_crc,
    bint is_chain_known, object crc32c
)

@cython.locals(value="unsigned long long")
cdef long long _u32(const unsigned char[::1] d, Py_ssize_t at) noexcept
cdef long long _i32(const unsigned char[::1] d, Py_ssize_t at) noexcept
@cython.locals(value="unsigned long long")
cdef long long _i64(const unsigned char[::1] d, Py_ssize_t at) noexcept
@cython.locals(i=int)
cdef void _put_32(unsigned char* d, Py_ssize_t at, long long value) noexcept
@cython.locals(i=int)
cdef void _put_64(unsigned char* d, Py_ssize_t at, long long value) noexcept
