"""A deterministic simulation of a group: real cores on simulated disks and a simulated network."""
