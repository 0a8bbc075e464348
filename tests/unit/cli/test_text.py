"""Foreign text on a terminal."""

import io

import pytest
from rich.console import Console

from tests.unit.cli import facts
from thread_objects.cli.records import lines_of, transcript_of
from thread_objects.cli.render import Screen
from thread_objects.cli.text import instant, lasting, one_line, plain, short


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("\x1b[31mred", "\\u001b[31mred"),
        ("a\x00b", "a\\u0000b"),
        ("bell\x07", "bell\\u0007"),
        ("over\rwrite", "over\\u000dwrite"),
        ("evil\u202etxt", "evil\\u202etxt"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("naïve ünïcödé 🎉", "naïve ünïcödé 🎉"),
    ],
)
def test_control_characters_are_shown_not_obeyed(foreign: str, shown: str):
    """What a model writes cannot drive the terminal."""
    assert plain(foreign) == shown


def test_markup_in_foreign_text_is_text():
    """Square brackets are no styling instructions, and long lines are not wrapped."""
    sink = io.StringIO()
    Screen(Console(file=sink, width=20)).line("[bold]not bold[/bold] " + "x" * 50)
    assert sink.getvalue() == "[bold]not bold[/bold] " + "x" * 50 + "\n"


def test_long_values_are_cut_with_their_size():
    """A listing shows the start of a value and how long it is."""
    assert short("x" * 1_000, 10) == "xxxxxxxxxx… (1,000 characters)"
    assert short({"a": [1, None]}) == '{"a": [1, null]}'
    assert one_line(" a \n b ") == "a b"


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0 ms"), (999, "999 ms"), (4_200, "4.2 s"), (185_000, "3 min 5 s"), (7_800_000, "2 h 10 min")],
)
def test_durations_read_naturally(ms: int, shown: str):
    """A reader sees the unit that fits."""
    assert lasting(ms) == shown


def test_instants_are_utc():
    """Epoch milliseconds are shown as UTC, whatever the machine's zone."""
    assert instant(facts.AT) == facts.AT_TEXT


def test_every_record_kind_is_told():
    """Each kind has words of its own, and a later version's kind is shown by its name."""
    told = {record.kind: " ".join(line.what for line in lines_of(record)) for record in facts.records()}
    assert told["UserInputRecorded"] == "Refund order 1001"
    assert told["ModelResponseRecorded"].startswith("One moment. calls refund(")
    assert "needs approval" in told["ModelResponseRecorded"]
    assert "outcome unknown" in told["ToolCallUnknown"]
    assert told["SubmissionSettled"] == "completed: Done."
    assert told["KindOfALaterVersion"] == 'KindOfALaterVersion {"weather": "fine"}'
    assert all(told.values())


def test_record_that_does_not_decode_is_still_shown():
    """A record with missing fields is shown raw instead of ending the command."""
    lines = lines_of(facts.record(1, "ToolCallSettled", nonsense=True))
    assert [line.what for line in lines] == ['ToolCallSettled {"nonsense": true}']


def test_transcript_holds_the_conversation_only():
    """Bookkeeping records are no part of the transcript."""
    kinds = {record.kind for record in facts.records() if transcript_of(record)}
    assert kinds == {
        "UserInputRecorded",
        "ModelResponseRecorded",
        "ToolApprovalDecided",
        "ToolCallSettled",
        "ToolCallUnknown",
        "SubmissionSettled",
    }
