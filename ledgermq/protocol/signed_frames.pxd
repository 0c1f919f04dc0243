# C types for signed_frames.py.

cimport cython
from libc.string cimport memcpy

from ledgermq.protocol.hash_calls cimport hash_final, hash_update

cdef int _QUOTE, _BACKSLASH, _COMMA, _COLON, _ZERO, _CLOSE, _SPACE, _DELETE, _NAME_END, _VALUE_END
cdef int _KEY, _KEY_END, _GIVEN, _GIVEN_END, _BODY, _FILLER, _UPPER_A, _LETTER_A
cdef int _SEND_MEMBERS_MAX
cdef Py_ssize_t _ESCAPE_EXTRA, _FIELDS_BYTES, _MEMBERS_MAX, _FRONT_BYTES, _MAC_BYTES, _MAC_TEXT, _STATE_BYTES
cdef Py_ssize_t _NAME_BYTES
cdef bytes _FIELDS, _STOPS, _DIGITS

@cython.locals(
    places="Py_ssize_t[5]", key="const unsigned char*", data="const unsigned char*",
    end=Py_ssize_t, count=Py_ssize_t, given_size=Py_ssize_t, send=tuple, frame=bytes,
    content=bytearray, mac="unsigned char[20]", topic=bytes,
)
cpdef Py_ssize_t count_signed(
    list frames, list sends, Py_ssize_t first, dict topics, bytes access_key, tuple keyed
) except -1

@cython.locals(
    places="Py_ssize_t[5]", key="const unsigned char*", data="const unsigned char*",
    given_size=Py_ssize_t, content=bytearray, body=bytes, mac="unsigned char[20]",
)
cpdef bint is_signed(bytes frame, bytes access_key, tuple keyed) except -1

@cython.locals(mac="unsigned char[20]")
cpdef bint is_signature_right(
    bytes signature, bytearray content, bytes body, tuple keyed
) except -1

@cython.locals(places="Py_ssize_t[5]", content=bytearray)
cpdef object read_signature(bytes frame)

@cython.locals(digest=bytes, i=int)
cdef void _put_mac(bytearray content, bytes body, tuple keyed, unsigned char* mac) except *

@cython.locals(
    begun=bytes, place="const unsigned char*", update=size_t, final=size_t,
    state="unsigned int[32]",
)
cdef void _put_library_mac(
    const unsigned char* content, Py_ssize_t content_size, const unsigned char* body,
    Py_ssize_t size, tuple keyed, unsigned char* mac
) except *

@cython.locals(
    digits="const unsigned char*", difference=int, held=int, waiting=int, i=int,
)
cdef bint _spells_mac(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t size, const unsigned char* mac
) noexcept

@cython.locals(
    data="const unsigned char*", fronts="unsigned long long[32]", names="Py_ssize_t[32]",
    starts="Py_ssize_t[32]", ends="Py_ssize_t[32]", sizes="Py_ssize_t[32]",
    order="Py_ssize_t[32]", end=Py_ssize_t, at=Py_ssize_t, count=Py_ssize_t,
    total=Py_ssize_t, place=Py_ssize_t, length=Py_ssize_t, member=Py_ssize_t, room=bytearray,
    out="unsigned char*",
)
cdef bytearray _read_content(bytes frame, Py_ssize_t* places)

@cython.locals(
    data="const unsigned char*", starts="Py_ssize_t[15]", ends="Py_ssize_t[15]",
    sizes="Py_ssize_t[15]", end=Py_ssize_t, at=Py_ssize_t, total=Py_ssize_t,
    is_letter=bint, member=int, start=Py_ssize_t, value_end=Py_ssize_t, escapes=Py_ssize_t,
    room=bytearray, out="unsigned char*", length=Py_ssize_t,
)
cdef bytearray _read_send(bytes frame, Py_ssize_t* places)

@cython.locals(end=Py_ssize_t, at=Py_ssize_t)
cdef Py_ssize_t _fields_at(
    const unsigned char* data, Py_ssize_t size, Py_ssize_t* places
) noexcept

@cython.locals(
    count=Py_ssize_t, name_end=Py_ssize_t, value_end=Py_ssize_t, start=Py_ssize_t,
    size=Py_ssize_t, plain=Py_ssize_t,
)
cdef Py_ssize_t _read_members(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t end, unsigned long long* fronts,
    Py_ssize_t* names, Py_ssize_t* starts, Py_ssize_t* ends, Py_ssize_t* sizes, Py_ssize_t* order,
    Py_ssize_t* places
) noexcept

@cython.locals(place=Py_ssize_t, other=Py_ssize_t, way=Py_ssize_t)
cdef bint _sort_in(
    const unsigned char* data, Py_ssize_t count, unsigned long long front,
    unsigned long long* fronts, Py_ssize_t* names, Py_ssize_t* starts, Py_ssize_t* order
) noexcept

@cython.locals(front="unsigned long long", used=Py_ssize_t, i=Py_ssize_t)
cdef unsigned long long _front(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t size
) noexcept

@cython.locals(i=Py_ssize_t, length=Py_ssize_t, other_length=Py_ssize_t)
cdef Py_ssize_t _compare(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t start, Py_ssize_t other,
    Py_ssize_t other_start
) noexcept

cdef Py_ssize_t _signed_size(
    const unsigned char* data, Py_ssize_t name, Py_ssize_t size, Py_ssize_t start, Py_ssize_t end,
    Py_ssize_t plain, Py_ssize_t* places
) noexcept

@cython.locals(length=Py_ssize_t)
cdef Py_ssize_t _plain_length(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept

cdef bint _is_separator(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(i=Py_ssize_t)
cdef void _put_plain(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t end, unsigned char* out,
    Py_ssize_t length, Py_ssize_t size
) noexcept

@cython.locals(stops="const unsigned char*")
cdef Py_ssize_t _name_end(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept
@cython.locals(stops="const unsigned char*", way=int)
cdef Py_ssize_t _value_end(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept
@cython.locals(i=Py_ssize_t)
cdef bint _is_text(
    const unsigned char* data, Py_ssize_t at, const unsigned char* text, Py_ssize_t text_bytes
) noexcept
