"""TLS without sockets: `contexts.py` reads tls.properties, `files.py` follows it and what it names,
`engine.py` is one connection.
"""
