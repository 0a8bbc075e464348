"""The diagrams of docs/maintenance.md are what the code says."""

import pytest

from tests.diagrams import DIAGRAMS, DOCUMENT, drawn, marked, renewed
from thread_objects.contract.states import SubmissionState
from thread_objects.core.due_row import RowState
from thread_objects.core.event_loop import Phase
from thread_objects.core.native_step import Stage

WHOLE = {
    "rows": [state.value for state in RowState],
    "submissions": [state.value.replace("-", "_") for state in SubmissionState],
    "phases": [phase.name.lower() for phase in Phase],
    "native-step": [stage.name.lower() for stage in Stage],
}


def test_no_diagram_is_stale():
    """`python -m tests.diagrams` would change nothing."""
    document = DOCUMENT.read_text()
    assert renewed(document) == document, "run: python -m tests.diagrams"
    assert sorted(marked(document)) == sorted(DIAGRAMS)


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_shows_every_state(name):
    """Each state is left and reached: what the source says has been understood whole."""
    lines = [line.strip().split(": ")[0].split(" --> ") for line in drawn(name).splitlines() if " --> " in line]
    before, after = {edge[0] for edge in lines}, {edge[1] for edge in lines}
    assert set(WHOLE[name]) <= before
    assert set(WHOLE[name]) <= after
