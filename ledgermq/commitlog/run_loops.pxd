# C types for run_loops.py.

cimport cython

cdef Py_ssize_t _UNIT, _HEAD, _PROVEN_MIN
cdef long long _SIGN_32
cdef unsigned long long _SIGN_64

@cython.locals(
    u="const unsigned char*", there=Py_ssize_t, count=Py_ssize_t, found_bytes="long long",
    at="long long", size="long long",
)
cpdef tuple measure_run(
    bytes units, long long begin, long long end, long long lowest, long long bytes_max,
    Py_ssize_t count_max
)

@cython.locals(
    count=Py_ssize_t, units=bytes, queue_id="long long", queue_offset="long long", segment=object,
    begin="long long", checksum=object, d="const unsigned char[::1]", u="const unsigned char*",
    head_bytes=Py_ssize_t, segment_bytes=Py_ssize_t, total=Py_ssize_t, place="long long",
    size="long long", room=object, out="unsigned char*", i=Py_ssize_t, at=Py_ssize_t,
    body_crc="long long",
)
cpdef bytes read_run(bytes head, tuple run)

@cython.locals(i=Py_ssize_t)
cdef void _copy(
    unsigned char* out, Py_ssize_t at, const unsigned char[::1] d, Py_ssize_t place,
    Py_ssize_t size
) noexcept
cdef long long _unit_place(const unsigned char* u, Py_ssize_t at) noexcept
cdef long long _unit_size(const unsigned char* u, Py_ssize_t at) noexcept
@cython.locals(value="unsigned long long")
cdef long long _u32(const unsigned char[::1] d, Py_ssize_t at) noexcept
@cython.locals(value="unsigned long long")
cdef long long _own_u32(const unsigned char* u, Py_ssize_t at) noexcept
@cython.locals(value="unsigned long long")
cdef long long _own_i64(const unsigned char* u, Py_ssize_t at) noexcept
