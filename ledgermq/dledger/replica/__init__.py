"""One running member of a group: the pure core on a reactor, with its disk and its peers."""
