"""What is measured while a program runs: plain numbers, cheap to count, read when somebody asks.

    histogram.py    Histogram: counts by bounds, and their sum

Pure, and below all rooms: whoever measures has its own, and whoever shows it reads it.
"""
