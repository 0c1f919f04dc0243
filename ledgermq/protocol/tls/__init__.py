"""TLS without sockets: `contexts.py` reads tls.properties, `engine.py` is one connection."""
