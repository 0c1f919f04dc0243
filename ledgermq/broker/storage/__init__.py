"""What is on disk: opened, flushed and closed, with a ledger (`storage.py`) or with a log that has
none (`plain_storage.py`). What waits for the disk is asked of the keeper (`flushes.py`).
"""
