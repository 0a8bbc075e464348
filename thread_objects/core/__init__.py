"""The pure core: what must hold, decided without I/O, clock or randomness."""
