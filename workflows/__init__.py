"""Temporal workflows: the deterministic shell around `thread_objects.core`."""
