"""The replicated ledger: DLedger's Raft as a pure core, usable without a broker."""
