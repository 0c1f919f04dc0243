"""The suite: unit, property, simulation, interop, fault, e2e and tidy, one directory each."""
