"""Where a test can end the process in the middle of maintenance.

A stretch without await is durable as a whole, with the workflow task that it belongs to: before and after one of its
steps are one crash point, named here by the step's end. The two sides of a stored fault lie in the activities.
"""

from temporalio import workflow

from thread_objects import failpoints

LOCATIONS = (
    "binding-retry:after",
    "begin:after",
    "checkpoint:after",
    "dirty:after",
    "ensure:after",
    "finish:after",
    "mutation:armed",
    "mutation:finished",
    "retry:after",
    "select:after",
)
PREFIX = "maintenance:"


def hit(*locations: str) -> None:
    """Pass these, if a test listens; never while replaying."""
    if failpoints.listening() and not workflow.unsafe.is_replaying():
        for location in locations:
            failpoints.hit(PREFIX + location)
