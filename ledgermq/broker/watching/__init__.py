"""What is told of a broker to probes and to Prometheus. Pure: facts in, text out.

health.py        Facts, and what livez, readyz, startupz and quorum-safe make of them
progress.py      HealthWatch: what only shows over time: a disk that hangs, a follower that lags
health_views.py  the four as views of the HTTP port
"""
