# C types for consume_queue.py.

cimport cython

from ledgermq.commitlog.prefetch cimport fetch

cdef Py_ssize_t _UNIT_BYTES

# What each unit touches comes first.
@cython.final
cdef class ConsumeQueue:
    cdef readonly long long max_offset
    cdef long long _lease, _limit, _tail_offset
    cdef unsigned char* _base
    cdef readonly str topic
    cdef readonly long long queue_id
    cdef readonly object files
    cdef readonly long long min_offset, dropped_position
    cdef readonly str _directory
    cdef object _tail, _flight, _taken
    cdef str _last_path
    cdef long long _held_offset, _segment_bytes, _made_end, _blank_end, _wipe_from
    cdef list _starts

    @cython.locals(at="long long")
    cpdef bint add(self, long long offset, bytes unit, long long lease) except *

    cpdef void fetch_end(self) noexcept

    @cython.locals(at="long long", count="long long")
    cpdef object put(self, long long first_offset, bytes data, object index)

    @cython.locals(room="long long", held=object, buffer=object, view="unsigned char[::1]")
    cpdef object _have_room(self, long long needed)

    @cython.locals(
        first="long long", end="long long", begin="long long", behind="long long", at="long long",
        start="long long", stop="long long", last="long long",
    )
    cpdef object take(self, object changes)

@cython.locals(i=Py_ssize_t)
cdef void _copy_unit(unsigned char* room, const unsigned char* unit) noexcept
