"""Decisions as an operator is shown them."""

import pytest

from thread_objects.contract.states import Disposition
from thread_objects.core.recovery import DECISIONS, predicted_disposition
from thread_objects.core.recovery import decisions as d

PREDICTED = {
    "NoAction": "none",
    "FinalizeLedgerFromHistory": "repaired",
    "SettleAborted": "repaired",
    "MarkUnknown": "unknown",
    "ApplyUnknownResolutions": "repaired",
    "AwaitUnknownResolution": "unknown",
    "ResumeSuspended": "deferred",
    "RevertJoining": "repaired",
    "RepairJoinMarker": "repaired",
    "SettleJoinedWithHost": "repaired",
    "AwaitHostSettlement": "deferred",
    "CompleteMaterialization": "repaired",
    "RepairReadiness": "repaired",
    "ApplyInput": "deferred",
    "RepairInputMarker": "repaired",
    "ResumeFromTurnBoundary": "deferred",
    "ResumePendingToolBatch": "deferred",
    "CompleteChildAdmission": "repaired",
    "AwaitChildAdmissionResolution": "deferred",
    "RepairSubagentStartLink": "repaired",
    "EnsureWaitingForChild": "repaired",
    "AwaitChildSettlement": "deferred",
    "ResumeWaitingParent": "repaired",
    "ApplyJoinAccounting": "repaired",
    "PropagateChildAbort": "repaired",
    "ReleaseOrphanChildReservation": "repaired",
    "AwaitParentEstablishment": "deferred",
}


def test_every_decision_predicts_what_the_contract_says():
    """Predicted dispositions are data, and they are those of the contract's table."""
    predicted = {kind.__name__: kind.predicted for kind in DECISIONS if kind is not d.AwaitApprovalDecision}
    assert predicted == PREDICTED


@pytest.mark.parametrize(("suspended", "predicted"), [(True, "deferred"), (False, "repaired")])
def test_a_lost_suspension_is_predicted_repaired(suspended, predicted):
    """ADM-004: an intact suspension waits, a lost one is restored."""
    assert predicted_disposition(d.AwaitApprovalDecision("c1", suspended)) == predicted


def test_resolutions_under_a_changed_contract_are_predicted_unknown():
    """A permission to retry holds for the operation it was given for only."""
    assert predicted_disposition(d.ApplyUnknownResolutions()) is Disposition.REPAIRED
    assert predicted_disposition(d.ApplyUnknownResolutions(), retry_supported=False) is Disposition.UNKNOWN
    assert predicted_disposition(d.SettleAborted(), retry_supported=False) is Disposition.REPAIRED


@pytest.mark.parametrize("kind", DECISIONS, ids=lambda kind: kind.__name__)
def test_every_decision_says_what_it_means_and_which_window_it_repairs(kind):
    """Nobody has to read code to know what a row waits for."""
    assert kind.meaning
    assert kind.__doc__.startswith("Window:")
