"""The deployment as a wheel carries it.

In a checkout this package is empty: `workflows/`, `activities/`, `storage/` and `worker.py` lie beside
`thread_objects`. The wheel puts the same files in here, so that it installs one top-level name and nothing called
`workflows` lands in anybody's site-packages. Loaded by name only, through `thread_objects._runtime`.
"""
