"""The simulation tier: the real maintenance core under a seeded scheduler, with every fault that it must survive."""
