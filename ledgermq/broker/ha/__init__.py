"""The replication of a plain commit log: a master sends its bytes, slaves append and report.

    slave ──report: 8 own end offset──────────────────────────────> master
          <──frame: 8 physical offset, 4 size, size bytes of log───

`frames.py`, `master_link.py`, `slave_link.py` and `acknowledgements.py` decide and open nothing;
`server.py` and `client.py` are the two ends on Twisted. `roles.py` chooses by a broker's role,
`plain_member.py` stands where a ledger's member would, and `following.py` is what any broker that
does not lead has to do with the one that does. Source: `HAService.java`,
`HAConnection.java` of 4.9.3.
"""
