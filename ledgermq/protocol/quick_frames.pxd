# C types for quick_frames.py.

cimport cython

cdef int _QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _ZERO, _NINE, _OPEN, _CLOSE, _SPACE, _DELETE
cdef int _NAME_END, _VALUE_END, _DIGITS_MAX, _SEND_MESSAGE_V2, _RESPONSE_BIT, _REQUIRED, _A, _FIELDS
cdef int _PULL_MESSAGE, _LITE_PULL_MESSAGE, _ONE_WAY_BIT, _PULL_TEXTS, _PULL_INT32, _PULL_REQUIRED
cdef int _UPPER_A, _ACCESS_KEY_BIT, _SIGNATURE_BIT
cdef long long _INT32_MAX
cdef Py_ssize_t _KEYS_MAX

@cython.locals(sends=list, frame=bytes, send=object)
cpdef list read_quick_sends(list frames)

cpdef object read_quick_pull(bytes frame)

@cython.locals(
    data="const unsigned char*", size=Py_ssize_t, end=Py_ssize_t, code="long long",
    opaque="long long", flag="long long", number="long long", fields_at=Py_ssize_t,
    fields_end=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, name_at=Py_ssize_t,
    value_at=Py_ssize_t, value_end=Py_ssize_t, length=Py_ssize_t, is_remark=bint,
)
cdef object _read_frame(bytes frame, bint is_pull)

@cython.locals(
    data="const unsigned char*", seen=int, key=int, bit=int, is_false=bint, topic_at=Py_ssize_t,
    topic_end=Py_ssize_t, properties_at=Py_ssize_t, properties_end=Py_ssize_t,
    queue_id="long long", sys_flag="long long", born="long long", own_flag="long long",
    times="long long", number="long long", at=Py_ssize_t, value_at=Py_ssize_t,
    value_end=Py_ssize_t, topic=bytes, body=bytes, properties=object,
)
cdef object _read_fields(
    bytes frame, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t body_at, long long opaque,
    long long flag
)

@cython.locals(
    data="const unsigned char*", starts="Py_ssize_t[13]", ends="Py_ssize_t[13]",
    numbers="long long[13]", seen=int, key=int, at=Py_ssize_t, name_end=Py_ssize_t,
    value_at=Py_ssize_t, value_end=Py_ssize_t, text=bytes,
)
cdef object _read_pull(bytes frame, Py_ssize_t start, Py_ssize_t stop, long long opaque)

cdef Py_ssize_t _signature_end(const unsigned char* data, Py_ssize_t at, Py_ssize_t stop) noexcept

cdef int _pull_field(const unsigned char* data, Py_ssize_t at, Py_ssize_t length) noexcept

@cython.locals(
    data="const unsigned char*", room=bytearray, out="unsigned char*", at=Py_ssize_t,
    length=Py_ssize_t, char=int,
)
cdef object _read_properties(bytes frame, Py_ssize_t start, Py_ssize_t end)

@cython.locals(
    start=Py_ssize_t, kept=Py_ssize_t, name_end=Py_ssize_t, stop=Py_ssize_t,
)
cdef Py_ssize_t _without_wait(unsigned char* out, Py_ssize_t length) noexcept

cdef bint _means_something(const unsigned char* data, Py_ssize_t at, Py_ssize_t length) noexcept
@cython.locals(count=Py_ssize_t)
cdef bint _has_many_keys(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept
@cython.locals(char=int)
cdef Py_ssize_t _string_end(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept
@cython.locals(char=int)
cdef Py_ssize_t _object_end(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept
@cython.locals(start=Py_ssize_t, is_padded=bint)
cdef Py_ssize_t _number_end(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept
@cython.locals(is_negative=bint, value="long long")
cdef long long _number(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint _has_escape(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept
@cython.locals(i=Py_ssize_t)
cdef bint _is_text(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t length, const unsigned char* text,
    Py_ssize_t text_bytes
) noexcept
