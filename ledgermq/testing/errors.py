"""ClusterError: what a cluster inside a test says when it cannot do what is asked of it."""


class ClusterError(Exception):
    """The cluster is not in a state for what was asked, or did not get there in time."""
