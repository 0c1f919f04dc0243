"""Registration: what the name servers are told of this broker, each on its own connection."""
