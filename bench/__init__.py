"""Benchmarks: one file for each question. ``python -m bench`` runs them and renews the table.

A figure is a ratio against a limit or a peer measured in the same run; nothing here asserts a time.
"""
