"""What users test with: a cluster inside a test, and the simulation of a broker group.

LedgerCluster    a name server and brokers inside the process of a test; docs/testing.md
simulation/      one seed fixes every size, delay and fault of a run; docs/simulation.md
"""

from ledgermq.testing.errors import ClusterError
from ledgermq.testing.ledger_cluster import LedgerCluster
from ledgermq.testing.node import NodeState

__all__ = ["ClusterError", "LedgerCluster", "NodeState"]
