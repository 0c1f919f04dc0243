"""Stock clients, stock brokers and real processes around LedgerMQ; start with README.md."""
