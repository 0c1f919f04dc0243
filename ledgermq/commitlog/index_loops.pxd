# C types for index_loops.py.

cimport cython

from ledgermq.commitlog.prefetch cimport fetch

cdef Py_ssize_t _HEADER_BYTES, _SLOT_BYTES, _ENTRY_BYTES
cdef long long _SIGN, _MASK, _SECONDS_MAX

@cython.locals(
    f="unsigned char[::1]", b="unsigned char[::1]", at=Py_ssize_t, slots_used=Py_ssize_t, start="long long",
    topic_hash="long long", key=bytes, physical_offset="long long", timestamp="long long",
    unsigned="long long", slot_at=Py_ssize_t, previous="long long", seconds="long long", i=int,
    shift=int,
)
cpdef Py_ssize_t enter_keys(
    object front, object entries, object keys, Py_ssize_t slot_count, Py_ssize_t number,
    long long first_base, long long base
) except -1

cdef int _check_room(
    Py_ssize_t size, Py_ssize_t entries_size, Py_ssize_t count, Py_ssize_t slot_count,
    Py_ssize_t number
) except -1

@cython.locals(value="long long")
cdef long long _u32(unsigned char[::1] b, Py_ssize_t at) noexcept

@cython.locals(value="unsigned long long", t="const unsigned char*", i=Py_ssize_t)
cdef long long _hash(long long prefix, bytes text, Py_ssize_t count) noexcept
