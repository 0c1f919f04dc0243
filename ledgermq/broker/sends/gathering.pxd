# C types for gathering.py.

cimport cython

cdef Py_ssize_t _FIXED, _PROPERTIES_MAX, _ELEMENT_FIXED, _COUNT_MAX, _KEYS_MAX
cdef long long _MARKED, _ONE_WAY
cdef object _new_tuple

@cython.final
cdef class OpenTopic:
    cdef str _name
    cdef long long _queue_count, _sys_flag, _messages, _bytes

@cython.locals(
    total=Py_ssize_t, born_host=object, name=bytes,
    queue_id="long long", sys_flag="long long", flag="long long", properties=bytes, body=bytes,
    topic=OpenTopic, text=bytes, size=Py_ssize_t, fields=tuple,
    receiver=object,
)
cpdef Py_ssize_t gather(
    list sends, dict topics, object connection, tuple store_host, bytes last_property,
    Py_ssize_t record_bytes_max, list messages, list requests
) except -1

@cython.locals(
    messages=list, data="const unsigned char*", total=Py_ssize_t, at=Py_ssize_t,
    topic_bytes=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, flag="long long",
    inner_bytes=Py_ssize_t, stop=Py_ssize_t, text_at=Py_ssize_t, text_bytes=Py_ssize_t,
    record_bytes=Py_ssize_t, text=bytes, inner=bytes, fields=tuple,
)
cpdef object gather_batch(
    bytes body, str topic, object queue_id, object sys_flag, object born, tuple born_host,
    tuple store_host, object times, Py_ssize_t record_bytes_max
)

@cython.locals(value="long long")
cdef long long _int32(const unsigned char* data, Py_ssize_t at) noexcept
