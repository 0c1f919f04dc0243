"""A deterministic simulation of a broker group: production code on a simulated world.

One seed fixes sizes, delays and faults of a run. Begin with `world.py`; `plan.py` is what a seed
draws, `faults.py` what goes wrong, `invariants.py` and `history.py` what must hold anyway.
"""
