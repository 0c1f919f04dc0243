# C types for answering.py.

cimport cython

cdef int _ZERO, _DIGITS_MAX
cdef Py_ssize_t _TINY, _SMALL, _MEDIUM, _LARGE, _HUGE, _MOST

@cython.locals(
    for_all=list, not_for_slaves=list, waiting=list, cursor=Py_ssize_t, count=Py_ssize_t, part=list,
    size=Py_ssize_t, each=Py_ssize_t, total=Py_ssize_t, tiny=Py_ssize_t, small=Py_ssize_t,
    medium=Py_ssize_t, place=Py_ssize_t,
)
cpdef tuple wait_for(
    list requests, list results, str id_prefix, object deadline_ms, object without_slaves,
    list sizes
)

@cython.locals(
    frames_of=dict, dones=list, count=Py_ssize_t, size=Py_ssize_t, message_count=Py_ssize_t,
    size_bytes=Py_ssize_t, index="long long", opaque="long long", serialize_type=int, message_id=str, frames=list,
)
cpdef tuple take_answers(
    object waiting, long long end_index, tuple pieces, object encode, str region_id
)

@cython.locals(room=bytearray, out="unsigned char*", at=Py_ssize_t)
cdef bytes _json_answer(
    tuple pieces, long long queue_id, bytes message_id, long long queue_offset, long long opaque
)

cdef void _put_length(unsigned char* out, Py_ssize_t at, Py_ssize_t value) noexcept
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _put_bytes(
    unsigned char* out, Py_ssize_t at, const unsigned char* data, Py_ssize_t size
) noexcept
@cython.locals(digits=Py_ssize_t, rest="long long", end=Py_ssize_t, place=Py_ssize_t)
cdef Py_ssize_t _put_number(unsigned char* out, Py_ssize_t at, long long value) noexcept
