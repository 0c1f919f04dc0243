# Asks the processor for memory before it is needed. An address that is none is no error: then
# nothing comes.

cdef extern from *:
    """
    #define LEDGERMQ_FETCH(place) __builtin_prefetch(place, 1)
    """
    void fetch "LEDGERMQ_FETCH"(const void*) noexcept
    void fetch_object "LEDGERMQ_FETCH"(object) noexcept
