# C types for row_loops.py.

cimport cython

from ledgermq.commitlog.consume_queue cimport ConsumeQueue
from ledgermq.commitlog.prefetch cimport fetch_object
from ledgermq.commitlog.row cimport TopicQueue

cdef long long _MAGIC, _V6, _PREPARED, _TRANSACTION, _ROLLBACK
cdef Py_ssize_t _BODY_AT, _TAIL_BYTES_MIN, _PROPERTIES_BYTES_MAX
cdef long long _SIGN_32, _NO_LEASE
cdef unsigned long long _SIGN_64
cdef int _SEPARATOR, _MULTI_BEGIN
cdef bytes _TAGS, _KEYS, _UNIQUE, _MULTI
cdef object _new_row

@cython.locals(
    p="const unsigned char*", rows=list, found=list, start="Py_ssize_t", stop="Py_ssize_t",
    at="Py_ssize_t", topic_at="Py_ssize_t", shared=TopicQueue,
)
cpdef list rows_between(
    bytes data, object starts, object stops, Py_ssize_t head_bytes, object maker
)

@cython.locals(
    p="const unsigned char*", total="Py_ssize_t", found=list, topic_queues=dict, topic=bytes,
    start="Py_ssize_t", stop="Py_ssize_t", at="Py_ssize_t", topic_at="Py_ssize_t",
    topic_end="Py_ssize_t", shared=TopicQueue,
)
cdef list _topic_queues_of(
    bytes data, object starts, object stops, Py_ssize_t head_bytes, object maker
)

@cython.locals(
    rows=list, index="long long", base="long long", at=Py_ssize_t, starts=list,
    start="long long", shared=TopicQueue, queue_offset="long long", properties=bytes,
    place="long long", size=Py_ssize_t, row=object,
)
cpdef list appended_rows(
    object entries, list records, object messages, list numbers, long long timestamp,
    object maker, object rare_row, list results, object result_type
)

@cython.locals(
    key_rows=list, row=object, queue=ConsumeQueue, queue_offset="long long", unit=bytes,
    lease="long long", stored="long long", latest="long long",
)
cpdef tuple put_rows(object rows, object index, list arrivals, object put_light)

@cython.locals(
    body_at="Py_ssize_t", topic_at="Py_ssize_t", topic_end="Py_ssize_t",
    properties_bytes="Py_ssize_t",
)
cdef bint _is_usual(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t total
) noexcept

cdef Py_ssize_t _topic_at(const unsigned char* p, Py_ssize_t at) noexcept

@cython.locals(
    end="Py_ssize_t", tags_at="Py_ssize_t", tags_end="Py_ssize_t", keys_at="Py_ssize_t",
    keys_end="Py_ssize_t", unique_at="Py_ssize_t", unique_end="Py_ssize_t",
    keys=tuple, tags_codes=dict, fields=tuple, code="long long", queue=ConsumeQueue,
)
cdef object _row_of(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t stop, TopicQueue shared, long long sys_flag,
    long long queue_offset, long long physical_offset, long long size_bytes,
    long long store_timestamp, object body, object maker
)

@cython.locals(scratch=bytearray, u="unsigned char*", i="int")
cdef bytes _unit_of(long long physical_offset, long long size_bytes, long long tags_code)

@cython.locals(t="const unsigned char*", i="Py_ssize_t")
cdef bint _has(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t end, bytes text, Py_ssize_t count
) noexcept

@cython.locals(value="unsigned long long")
cdef long long _i64(const unsigned char* p, Py_ssize_t at) noexcept
cdef long long _i32(const unsigned char* p, Py_ssize_t at) noexcept
@cython.locals(value="unsigned long long")
cdef long long _u32(const unsigned char* p, Py_ssize_t at) noexcept
