# C types for encoding.py.

cimport cython

from ledgermq.commitlog.row cimport TopicQueue

cdef long long _MAGIC, _CRC_MASK, _INT32_MAX, _PORT_MAX, _V6, _PREPARED
cdef Py_ssize_t _FIXED, _RECORD_MAX, _TOPIC_MAX, _PROPERTIES_MAX

@cython.locals(
    queue=TopicQueue, records=list, numbers=list, changed=dict, born_host=tuple, store_host=tuple,
    body=bytes, properties=bytes, key=tuple, queue_offset="long long", record=bytes,
)
cpdef tuple encode_messages(
    list messages, long long timestamp, long long turn, dict queues,
    object find_queue, object give_light_offsets, Py_ssize_t body_bytes_max
)

@cython.locals(queue=TopicQueue)
cpdef object keep_offsets(list numbers, long long turn)

@cython.locals(
    topic_bytes=Py_ssize_t, body_bytes=Py_ssize_t, properties_bytes=Py_ssize_t, size=Py_ssize_t,
    room=object, out="unsigned char*", at=Py_ssize_t,
)
cdef bytes _usual_record(
    bytes topic, long long queue_id, long long flag, long long queue_offset, long long sys_flag,
    long long born, bytes born_address, long long born_port, long long timestamp,
    bytes store_address, long long store_port, long long times, long long prepared, bytes body,
    bytes properties
)

cdef void _put32(unsigned char* out, Py_ssize_t at, long long value) noexcept
cdef void _put64(unsigned char* out, Py_ssize_t at, long long value) noexcept
@cython.locals(i=Py_ssize_t)
cdef void _put_bytes(
    unsigned char* out, Py_ssize_t at, const unsigned char* data, Py_ssize_t size
) noexcept
