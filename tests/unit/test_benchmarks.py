"""The arithmetic of the benchmarks: what the last line says, and what the scripted agent does."""

import pytest

from benchmarks.bars import BARS, summary, verdicts, wanted
from benchmarks.run import WORKLOADS, chosen
from benchmarks.workload import ANSWER, Script, effects


def record(side: str, workload: str, **fields: object) -> dict[str, object]:
    """One measurement as the client process writes it."""
    return {"side": side, "w": workload, **fields}


def everything(side: str, factor: float) -> list[dict[str, object]]:
    """Three repetitions of all workloads; the second is the median, the third an outlier."""
    return [
        record(side, workload, p50=at, receipt_p50=at, median_ms=at, events=12, per_s=at)
        for workload in WORKLOADS
        for at in (factor * 9, factor * 10, factor * 90)
    ]


def test_ratio_is_ours_over_the_peer_by_medians():
    """A ratio compares the medians of the repetitions, so one outlier moves nothing."""
    found = summary(everything("ours", 1) + everything("temporal", 2), BARS)
    assert found == {
        "w1_p50": 0.5,
        "w1_paced_p50": 0.5,
        "receipt_paced_p50": 0.5,
        "receipt_signal_p50": 0.5,
        "w2_total": 0.5,
        "w2_events": 12,
        "w3_rate": 0.5,
    }


def test_signal_receipts_are_compared_with_the_peers_paced_acceptance():
    """The peer has one receipt, the acceptance of its update; both of ours are measured against it."""
    measured = [
        record("ours", "w1_signal", receipt_p50=3.0),
        record("temporal", "w1_paced", receipt_p50=10.0),
    ]
    assert summary(measured, BARS) == {"receipt_signal_p50": 0.3}


def test_repeated_effects_are_summed_over_repetitions():
    """No median may hide a single repeated effect."""
    runs = [record("ours", "w5", twice=twice, resume_s=3.0, unknown_visible_s=2.0) for twice in (0, 0, 1)]
    found = summary(runs, BARS)
    assert found == {"w5_unknown_visible_s": 2, "w5_resume_s": 3, "w5_twice": 1}
    assert [bar.name for bar, _, cleared in verdicts(found, wanted(["w5"], peer=False)) if not cleared] == ["w5_twice"]


def test_repetition_that_never_got_there_misses_the_bar():
    """A crash after which nothing resumed is not left out of the median."""
    runs = [record("ours", "w5", twice=0, resume_s=resumed) for resumed in (3.0, None, 3.0)]
    bars = wanted(["w5"], peer=True)
    found = summary(runs, bars)
    assert found == {"w5_twice": 0}
    assert [cleared for _, _, cleared in verdicts(found, bars)] == [False, False, True]


@pytest.mark.parametrize(("value", "cleared"), [(1.05, True), (1.051, False)])
def test_bar_holds_up_to_its_limit(value: float, cleared: bool):
    """A bar is cleared at its limit and not past it."""
    assert [bar.cleared(value) for bar in BARS if bar.name == "w1_p50"] == [cleared]


def test_without_the_peer_only_absolute_bars_are_wanted():
    """Ours alone answers no ratio and is not blamed for that."""
    assert [bar.name for bar in wanted(WORKLOADS, peer=False)] == [
        "w2_events",
        "w4_resume_rows",
        "w5_unknown_visible_s",
        "w5_resume_s",
        "w5_twice",
    ]


def test_subset_asks_only_for_what_it_measures():
    """`--only w1` stands for its three forms, in the order of the whole; a strange name is refused."""
    assert chosen("W2, w1") == ("w1", "w1_paced", "w1_signal", "w2")
    assert [bar.name for bar in wanted(chosen("w2"), peer=True)] == ["w2_total", "w2_events"]
    with pytest.raises(ValueError, match="w9"):
        chosen("w9")


def test_script_answers_after_its_turns():
    """`loop N` is N turns of two calls each and then the answer; `hello` is the answer at once."""
    script = Script.of("loop 2")
    assert [[call["id"] for call in script.calls(turn)] for turn in range(3)] == [
        ["c0-0", "c0-1"],
        ["c1-0", "c1-1"],
        [],
    ]
    assert Script.of("hello").calls(0) == []
    assert Script.of("crash 3 a file").path == "a file"
    assert len(ANSWER) == 200
    with pytest.raises(ValueError, match="no such workload text"):
        Script.of("dance 3")


def test_effect_being_written_is_not_counted(tmp_path):
    """A trace is read while a tool appends to it: half a line is no effect yet."""
    traces = tmp_path / "traces"
    assert effects(traces) == []
    traces.write_text("c0-0 7 1.5\nc0-1 7 1.")
    assert [(effect.call, effect.pid, effect.at) for effect in effects(traces)] == [("c0-0", 7, 1.5)]
