"""What operators ask and change: topics and groups by hand (`topics.py`), messages by key and place
(`query.py`), the store and its upkeep (`inspection.py`), the broker itself (`runtime_info.py`).
"""
