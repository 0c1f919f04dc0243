"""What users test with: the deterministic simulation of a broker group.

Start with `simulation/`: one seed fixes every size, delay and fault of a run.
"""
