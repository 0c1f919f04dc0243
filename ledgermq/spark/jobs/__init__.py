"""Jobs of the pipeline: each a module with `add_arguments` and `run`, for command and spark-submit.

Contract: a job may be killed at any time and started again with the same arguments; what it had
done stays done, and nothing is done twice. Read archive.py first; running.py starts the session.
"""
