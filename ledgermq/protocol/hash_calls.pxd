# Functions of a library by their addresses, which `library_hash.py` finds.

cdef extern from *:
    """
    typedef int (*ledgermq_hash_update)(void *, const void *, size_t);
    typedef int (*ledgermq_hash_final)(unsigned char *, void *);
    #define LEDGERMQ_HASH_UPDATE(address, state, data, size) \
        ((void)((ledgermq_hash_update)(size_t)(address))((state), (data), (size)))
    #define LEDGERMQ_HASH_FINAL(address, digest, state) \
        ((void)((ledgermq_hash_final)(size_t)(address))((digest), (state)))
    """
    void hash_update "LEDGERMQ_HASH_UPDATE"(
        size_t address, void* state, const void* data, Py_ssize_t size
    ) noexcept
    void hash_final "LEDGERMQ_HASH_FINAL"(
        size_t address, unsigned char* digest, void* state
    ) noexcept
