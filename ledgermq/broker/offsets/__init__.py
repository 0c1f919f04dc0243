"""Offsets: how far groups are, asked, told and looked at.

`processor.py` has the requests of clients, `group_offsets.py` those of tools; `relay.py` passes on
what clients tell a member that leads no longer.
"""
