"""Clocks that can be wrong: the store times of the log beside this machine's clock
(`log_times.py`), and the time by which stored things are too old (`expiry_clock.py`).
"""
