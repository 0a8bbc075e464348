"""Agents to serve and to read: `threads dev --agents examples.payments:registry`."""
