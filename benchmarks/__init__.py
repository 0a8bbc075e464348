"""Benchmarks W1 to W5: ours, and side by side a plain Temporal program that does the same. See docs/benchmarks.md."""
