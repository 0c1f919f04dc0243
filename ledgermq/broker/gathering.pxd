# C types for gathering.py.

cimport cython

cdef Py_ssize_t _FIXED, _PROPERTIES_MAX
cdef long long _TRANSACTION, _ONE_WAY
cdef object _new_tuple

@cython.locals(
    messages=list, requests=list, total=Py_ssize_t, born_host=object, name=bytes,
    queue_id="long long", sys_flag="long long", flag="long long", properties=bytes, body=bytes,
    topic=tuple, topic_name=object, counter=list, text=bytes, size=Py_ssize_t, fields=tuple,
    receiver=object,
)
cpdef object gather(
    list sends, dict topics, dict puts, object connection, tuple store_host, bytes last_property,
    Py_ssize_t record_bytes_max
)
