"""What is on disk: opened, flushed and closed, with a ledger (`ledger_storage.py`) or with a log
that has none (`plain_storage.py`). What waits for the disk is asked of the keeper (`flushes.py`).
What the ledger tells is carried out by `applier.py`; the files are cared for by `disk_care.py`.
"""
