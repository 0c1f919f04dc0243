"""Attacks on brokers, name servers and members."""
