"""The configuration: keys of upstream's properties file, parsed once into typed fields.

`key.py` is one key and how its text is read, `keys.py` the table of all, with `store_keys.py` and
`replication_keys.py` as parts of it; `broker_config.py`, to be read first, makes the fields of a
file.
"""
