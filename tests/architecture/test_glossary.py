"""The glossary is law: the words that the code is made of stand in it."""

import re

from tests.architecture.tree import ROOT
from thread_objects.contract import messages, states

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
TERMS = {term.strip() for term in re.findall(r"^\| ([^|]+?) \|", GLOSSARY, re.MULTILINE)} - {"Term", "Verb", "---"}
NOUNS = [
    "Thread Object",
    "Submission",
    "Receipt",
    "Settlement",
    "Attempt",
    "Turn",
    "Alarm",
    "Generation",
    "Lane",
    "Evidence",
    "Recovery",
    "Thread",
    "Run",
    "Claim",
    "Epoch",
    "Lease",
    "Log",
    "Record",
    "Batch",
    "Ledger",
    "Binding",
    "Registry",
    "Unknown Outcome",
    "Step",
    "Approval",
    "Head",
    "Wake",
    "Obligation",
    "Failpoint",
    "Inbox",
    "Pump",
    "Pass",
    "Gate",
    "Mark",
]
VERBS = ["admit", "claim", "arm", "charge", "certify", "settle", "recover", "park"]


def test_the_agreed_words_are_explained():
    """Every noun and verb that names things in the code has an entry."""
    assert [word for word in NOUNS + VERBS if word not in TERMS] == []


def test_no_word_is_explained_twice():
    """A term has one meaning; what a second one would say stands in the first."""
    entries = re.findall(r"^\| ([^|]+?) \|", GLOSSARY, re.MULTILINE)
    words = [entry.strip().casefold() for entry in entries if entry.strip() not in {"Term", "Verb", "---"}]
    nouns_and_verbs = {"claim", "certify"}
    assert sorted({word for word in words if words.count(word) > 1} - nouns_and_verbs) == []


def test_states_that_users_meet_are_explained():
    """Outcomes and tool classes appear in the words that users read."""
    for value in (*states.Outcome, *states.ToolClass, *states.Decision):
        assert f"`{value}`" in GLOSSARY
    assert messages.PendingReceipt.__name__ in TERMS
