"""What a worker may serve beside agents, refused at its start when it is out of bounds."""

import sys
import types

import pytest

from thread_objects.contract import limits
from thread_objects.contract.activities import ApplyAnswer, ApplyRequest, SurveyRequest
from thread_objects.contract.messages import Submit
from thread_objects.contract.views import Survey
from thread_objects.errors import ConfigError
from thread_objects.extensions import Extensions, Lane, WaveContext, WaveInterrupted, load_extensions


class Driver:
    """A message driver of some timeout."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms

    def prepare(self, context):
        """Nothing."""

    def deliver(self, context, prepared):
        """Nothing."""


def lane(lane_id: str = "digest", **more) -> Lane:
    return Lane(lane_id, lambda _context: None, **more)


@pytest.mark.parametrize(
    ("lanes", "said"),
    [
        ([lane("thread-object:native")], "reserved"),
        ([lane("thread-object:mine")], "reserved"),
        ([lane(), lane()], "two lanes"),
        ([lane("")], "characters"),
        ([lane("x" * 257)], "characters"),
        ([lane(allowance_ms=0)], "allowance_ms"),
        ([lane(allowance_ms=300_001)], "allowance_ms"),
        ([lane(allowance_ms=1.5)], "allowance_ms"),
        ([lane(allowance_ms=True)], "allowance_ms"),
        ([lane(phase="sometime")], "phase"),
        ([lane(f"lane-{n}") for n in range(limits.LANES_MAX + 1)], "at most"),
    ],
)
def test_a_lane_out_of_bounds_is_refused_at_start(lanes, said):
    """Reserved prefix, duplicates and allowances never reach an object."""
    with pytest.raises(ConfigError) as refused:
        Extensions(lanes=lanes)
    assert said in str(refused.value)
    assert refused.value.setting == "extensions"


def test_a_message_drivers_time_is_bounded():
    """As an allowance."""
    with pytest.raises(ConfigError):
        Extensions(messages=Driver(300_001))
    assert Extensions(messages=Driver(300_000)).installed.message_timeout_ms == 300_000


def test_the_digest_says_what_is_installed_and_nothing_else():
    """Equal lists in any order are one deployment; a release makes another one of the same list."""
    one = Extensions(lanes=[lane("a"), lane("b")])
    assert one.installed.digest == Extensions(lanes=[lane("b"), lane("a")]).installed.digest
    others = {
        Extensions(lanes=[lane("a")]).installed.digest,
        Extensions(lanes=[lane("a"), lane("b", allowance_ms=1)]).installed.digest,
        Extensions(lanes=[lane("a"), lane("b")], release="2").installed.digest,
        Extensions(release="2").installed.digest,
        Extensions().installed.digest,
    }
    assert len(others) == 5
    assert one.installed.digest not in others
    assert Extensions().installed.digest == ""
    assert Extensions().empty


def test_a_worker_without_extensions_adds_nothing_to_the_wire():
    """Neither requests nor answers nor inputs that name no lane grow by a byte."""
    request = ApplyRequest(object_id="o", batch_id="b", mark=1, applied_through=0, items=())
    submit = Submit(thread_id="t", agent_id="a", principal="p", key="k", input="x")
    assert "installed" not in request.model_dump_json(by_alias=True)
    assert "installed" not in SurveyRequest(object_id="o").model_dump_json(by_alias=True)
    assert "installed" not in ApplyAnswer(answers=(), survey=Survey()).model_dump_json(by_alias=True)
    assert "lanes" not in submit.model_dump_json(by_alias=True)


def test_a_context_tells_when_to_stop_and_what_progressed():
    """By default progress is the wave's own."""
    told = False
    context = WaveContext(object_id="o", lane="digest", key="k", now=1, deadline=2, told=lambda: told)
    context.check()
    told = True
    assert context.cancelled
    with pytest.raises(WaveInterrupted):
        context.check()
    context.progress()
    context.progress("other")
    assert context.progressed == {"digest", "other"}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no-colon", "form"),
        ("no_such_module_anywhere:extensions", "no module"),
        ("made_for_this_test:missing", "no Extensions"),
        ("made_for_this_test:wrong", "no Extensions"),
    ],
)
def test_extensions_that_cannot_be_loaded_are_refused(monkeypatch, path, said):
    """With the setting's name."""
    module = types.ModuleType("made_for_this_test")
    module.wrong = 1
    monkeypatch.setitem(sys.modules, "made_for_this_test", module)
    with pytest.raises(ConfigError) as refused:
        load_extensions(path)
    assert said in str(refused.value)


def test_extensions_may_be_made_by_a_function(monkeypatch):
    """Or be there already; without a path there are none."""
    module = types.ModuleType("made_for_this_test")
    module.ready = Extensions(lanes=[lane()])
    module.make = lambda: module.ready
    monkeypatch.setitem(sys.modules, "made_for_this_test", module)
    assert load_extensions("made_for_this_test:ready") is module.ready
    assert load_extensions("made_for_this_test:make") is module.ready
    assert load_extensions(None).empty
