"""What the broker's audit log tells: changes by requests, and who had no right.

`changes.py` has a row for each request that changes something; `watch.py` stands around their
processors, `recorder.py` makes the log itself as the configuration says.
"""
