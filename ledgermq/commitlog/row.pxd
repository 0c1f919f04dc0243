# C types for row.py.

cimport cython

from ledgermq.commitlog.consume_queue cimport ConsumeQueue

# What each record touches comes first.
@cython.final
cdef class TopicQueue:
    cdef readonly ConsumeQueue queue
    cdef readonly bytes topic_bytes
    cdef readonly long long topic_hash
    cdef readonly bint is_schedule
    cdef public bint watched
    cdef readonly long long next_offset
    cdef long long _turn, _turn_end
    cdef readonly str topic
    cdef readonly long long queue_id

    cpdef object restart(self)

    @cython.locals(offset="long long")
    cpdef long long claim(self, long long turn) noexcept

    cpdef object keep(self, long long turn)
