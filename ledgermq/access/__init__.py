"""What the broker's rules of access and the name server's accounts share: patterns of addresses and
strict YAML. Who may do what is said in `ledgermq.broker.access` and `ledgermq.namesrv`.
"""
