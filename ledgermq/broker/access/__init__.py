"""Access control, version 1: who may do what, as upstream's plain_acl.yml says it.

`addresses.py` and `rules.py` are values, `needs.py` knows what a request touches, `guard.py`
decides, `rules_file.py` reads and writes a file, `rules_folder.py` all of them, `rules_table.py`
holds what is in force on this member and follows the leader; `processor.py` changes it by hand.
"""
