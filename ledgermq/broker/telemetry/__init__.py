"""What a broker sends to a collector of OpenTelemetry: metrics, and spans of sampled messages.

Loaded only where `otlpEndpoint` is set; needs the extra `ledgermq[otel]`. Spans are made by
`send_spans.py` and `pull_spans.py` of what the broker tells them, never more than the budget allows
(`budget.py`); metrics are read of the table that `/metrics` is made of (`metric_values.py`).
`exporting.py` knows OpenTelemetry's exporters and the thread that they wait in.
"""
