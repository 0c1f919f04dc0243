# C types for consume_queue.py.

cimport cython

cdef Py_ssize_t _UNIT_BYTES

# What each unit touches comes first.
@cython.final
cdef class ConsumeQueue:
    cdef readonly long long max_offset
    cdef long long _lease, _buffer_start, _segment_bytes
    cdef unsigned char* _base
    cdef readonly str topic
    cdef readonly long long queue_id
    cdef readonly object files
    cdef readonly long long min_offset, dropped_position
    cdef readonly str _directory
    cdef object _buffer
    cdef str _last_path
    cdef list _starts

    @cython.locals(at="long long")
    cpdef bint add(self, long long offset, bytes unit, long long lease) except *

    cpdef void fetch_end(self) noexcept

    @cython.locals(
        at="long long", start="long long", written=Py_ssize_t, count=Py_ssize_t, buffer=object,
        view="unsigned char[::1]",
    )
    cpdef object put(self, long long first_offset, bytes data, object index)

# An address that is none is no error: then nothing comes.
cdef extern from *:
    """
    #define LEDGERMQ_FETCH_PLACE(base, at) __builtin_prefetch((base) + (at), 1)
    """
    void fetch_place "LEDGERMQ_FETCH_PLACE"(unsigned char*, long long) noexcept

@cython.locals(i=Py_ssize_t)
cdef void _copy_unit(unsigned char* room, const unsigned char* unit) noexcept
