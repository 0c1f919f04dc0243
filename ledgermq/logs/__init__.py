"""The log of a program: which events are written (levels, repeats), and how (lines, JSON)."""
