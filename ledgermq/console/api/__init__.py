"""Handlers of the API: each a function from a Call to a shape, with no socket but the brokers'.

table.py        name of a route -> its handler
brokers.py      the overview, broker groups, settings
topics.py       topics
groups.py       consumer groups and what they are behind
clients.py      producers and consumers, and what one tells about itself
"""
