"""Temporal activities: one class per concern, dependencies by constructor."""
