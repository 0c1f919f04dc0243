"""Changes: planned, shown, confirmed, carried out one item after the other, written down.

plan.py       Plan: what a change would do, item by item; how an item ends
register.py   Register: previews, runs and their results
planners.py   kind of what is wanted -> its plan
topics.py     topics, and messages that are sent
groups.py     consumer groups and their offsets
letters.py    dead letters that are sent anew
brokers.py    accounts, settings, write permission, leaders, files
"""
