"""Application alarms: set, replace, cancel, hand out, back off; never lost, never moved by anything else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thread_objects.contract import limits
from thread_objects.contract.alarms import SetAlarm
from thread_objects.core.application_alarms import AlarmName, ApplicationAlarms, Setting
from thread_objects.core.refusal import AlarmRefusal


def asked(alarm_id: str = "1", run_at: int = 1_000, payload: object = None, *, thread: str = "A", tag: str = "t"):
    """A message."""
    return SetAlarm(thread_id=thread, tag=tag, alarm_id=alarm_id, run_at=run_at, payload=payload)


def name(alarm_id: str = "1", *, thread: str = "A", tag: str = "t") -> AlarmName:
    """A name."""
    return AlarmName(thread, tag, alarm_id)


def ids(alarms) -> list[str]:
    """Alarm ids, in order."""
    return [alarm.name.alarm_id for alarm in alarms]


def test_setting_again_with_equal_content_is_no_change():
    """Key order of a payload is no content; the counters of earlier deliveries stay."""
    alarms = ApplicationAlarms()
    assert alarms.set(asked(payload={"a": 1, "b": 2}), 0) is Setting.ARMED
    (delivery,) = alarms.begin_due(1_000, 0.0)
    alarms.failed(delivery, "Boom", 1_000, 0.0)
    assert alarms.set(asked(payload={"b": 2, "a": 1}), 5_000) is Setting.UNCHANGED
    (kept,) = alarms.listed()
    assert (kept.attempts, kept.failure, kept.next_at) == (1, "Boom", 1_500)


@pytest.mark.parametrize("other", [{"run_at": 2_000}, {"payload": "else"}])
def test_other_content_replaces_and_starts_anew(other):
    """The deadline is the new one at once, and what became of the old content is forgotten."""
    alarms = ApplicationAlarms()
    alarms.set(asked(), 0)
    (delivery,) = alarms.begin_due(1_000, 0.0)
    alarms.failed(delivery, "Boom", 1_000, 0.0)
    assert alarms.set(asked(**other), 1_000) is Setting.REPLACED
    (new,) = alarms.listed()
    assert (new.attempts, new.failure, new.next_at) == (0, None, other.get("run_at", 1_000))


def test_threads_tags_and_ids_are_told_apart():
    """An alarm belongs to its Thread: two Threads of one host may use the same tag and id."""
    alarms = ApplicationAlarms()
    for message in (asked(), asked(thread="B"), asked(tag="u"), asked("2")):
        assert alarms.set(message, 0) is Setting.ARMED
    assert len(alarms) == 4
    assert [alarm.name for alarm in alarms.listed("A")] == [name(), name("2"), name(tag="u")]
    assert alarms.cancel(name()) and not alarms.cancel(name())
    assert len(alarms) == 3


@pytest.mark.parametrize(
    "message",
    [
        asked(run_at=limits.ALARM_AHEAD_MS_MAX + 1),
        asked(payload="x" * limits.ALARM_PAYLOAD_BYTES_MAX),
        asked(payload=float("nan")),
    ],
    ids=["too far ahead", "payload too large", "no JSON"],
)
def test_what_is_outside_a_bound_is_refused_and_changes_nothing(message):
    """The alarm of that name stands as it was."""
    alarms = ApplicationAlarms()
    alarms.set(asked(payload="kept"), 0)
    with pytest.raises(AlarmRefusal, match="set alarm"):
        alarms.set(message, 0)
    assert [alarm.payload for alarm in alarms.listed()] == ['"kept"']


def test_an_object_keeps_a_bounded_number_of_alarms():
    """Past the bound only those that are known may be moved; a cancelled one makes room."""
    alarms = ApplicationAlarms()
    for n in range(limits.NAMED_ALARMS_MAX):
        alarms.set(asked(f"{n}"), 0)
    with pytest.raises(AlarmRefusal, match="1024 alarms"):
        alarms.set(asked("one more"), 0)
    assert alarms.set(asked("5", 7), 0) is Setting.REPLACED
    alarms.cancel(name("6"))
    assert alarms.set(asked("one more"), 0) is Setting.ARMED


def test_an_object_keeps_a_bounded_number_of_bytes():
    """What alarms weigh is carried to every fresh history, beside a full inbox."""
    alarms, heavy = ApplicationAlarms(), "x" * 16_000
    room = limits.ALARMS_BYTES_MAX // 16_010
    for n in range(room):
        alarms.set(asked(f"{n}", payload=heavy), 0)
    with pytest.raises(AlarmRefusal, match="bytes of alarms"):
        alarms.set(asked("one more", payload=heavy), 0)
    assert alarms.set(asked("0", payload="light"), 0) is Setting.REPLACED
    assert alarms.set(asked("one more", payload=heavy), 0) is Setting.ARMED


def test_due_alarms_are_handed_out_longest_due_first_and_a_few_at_a_time():
    """The others wait for room, and then the clock says nothing more: `next_at` is empty."""
    alarms = ApplicationAlarms()
    for n, run_at in enumerate((50, 40, 30, 20, 10, 10)):
        alarms.set(asked(f"{n}", run_at), 0)
    assert alarms.begin_due(9, 0.0) == []
    first = alarms.begin_due(100, 0.0)
    assert ids(first) == ["4", "5", "3", "2"]
    assert alarms.begin_due(100, 0.0) == []
    assert alarms.next_at() is None
    alarms.delivered(first[0])
    assert alarms.next_at() == 40
    assert ids(alarms.begin_due(100, 0.0)) == ["1"]


def test_retries_back_off_without_end_up_to_the_cap():
    """1 s doubling to 300 s, each inside [b/2, b]; the counter goes on."""
    alarms = ApplicationAlarms()
    alarms.set(asked(run_at=0), 0)
    now, delays = 0, []
    for attempt in range(1, 12):
        (delivery,) = alarms.begin_due(now, 0.5)
        assert delivery.attempts == attempt
        alarms.failed(delivery, "Boom", now, 0.0)
        at = alarms.next_at()
        delays.append(at - now)
        assert alarms.begin_due(at - 1, 0.0) == []
        now = at
    assert delays == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 150_000, 150_000]


def test_a_delivery_that_nobody_saw_end_is_due_again_later():
    """Charged before its work: a fresh history finds the count and a delay, not an alarm due at once."""
    alarms = ApplicationAlarms()
    alarms.set(asked(), 0)
    alarms.begin_due(1_000, 0.0)
    again = ApplicationAlarms(alarms.listed())
    assert again.running == 0
    assert again.next_at() == 1_500
    (delivery,) = again.begin_due(1_500, 0.0)
    assert delivery.attempts == 2


@pytest.mark.parametrize("ends_well", [True, False])
def test_cancelled_while_delivered_is_not_repeated(ends_well):
    """The delivery in hand may end either way; nothing comes after it."""
    alarms = ApplicationAlarms()
    alarms.set(asked(), 0)
    (delivery,) = alarms.begin_due(1_000, 0.0)
    assert alarms.cancel(name()) and alarms.is_delivering(name())
    if ends_well:
        alarms.delivered(delivery)
    else:
        alarms.failed(delivery, "Boom", 2_000, 0.0)
    assert (len(alarms), alarms.next_at(), alarms.is_delivering(name())) == (0, None, False)


@pytest.mark.parametrize("ends_well", [True, False])
def test_replaced_while_delivered_is_delivered_once_more_with_the_new_content(ends_well):
    """The old delivery acknowledges its own content only, and two of one name never run at once."""
    alarms = ApplicationAlarms()
    alarms.set(asked(payload="old"), 0)
    (old,) = alarms.begin_due(1_000, 0.0)
    assert alarms.set(asked(payload="new"), 1_000) is Setting.REPLACED
    assert alarms.begin_due(1_000, 0.0) == []
    if ends_well:
        alarms.delivered(old)
    else:
        alarms.failed(old, "Boom", 1_000, 0.0)
    (new,) = alarms.begin_due(1_000, 0.0)
    assert (new.payload, new.attempts) == ('"new"', 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("scbfd"), st.integers(0, 3), st.integers(0, 9)), max_size=60))
def test_an_alarm_leaves_only_by_a_good_end_or_a_cancel(steps):
    """Whatever interleaves: the bytes add up, two of one name never run, and nothing set is lost on the way."""
    alarms, owed, running, now = ApplicationAlarms(), {}, {}, 0
    for verb, n, value in steps:
        now += value
        if verb == "s":
            alarms.set(asked(f"{n}", now + value, value), now)
            owed[n] = value
        elif verb == "c":
            alarms.cancel(name(f"{n}"))
            owed.pop(n, None)
        elif verb == "b":
            for delivery in alarms.begin_due(now, value / 10):
                assert delivery.name not in running
                running[delivery.name] = delivery
        elif running:
            delivery = running.pop(sorted(running)[n % len(running)])
            mine = int(delivery.name.alarm_id)
            if verb == "d":
                standing = {alarm.name: alarm for alarm in alarms.listed()}.get(delivery.name)
                if standing is delivery:
                    owed.pop(mine, None)
                alarms.delivered(delivery)
            else:
                alarms.failed(delivery, "Boom", now, value / 10)
        assert sorted(owed) == sorted(int(i) for i in ids(alarms.listed()))
        assert {int(a.name.alarm_id): int(a.payload) for a in alarms.listed()} == owed
        assert alarms._bytes == sum(alarm.bytes for alarm in alarms.listed())
        assert alarms.running == len(running)
        waiting = [alarm.next_at for alarm in alarms.listed() if alarm.name not in running]
        assert alarms.next_at() == (min(waiting, default=None) if len(running) < 4 else None)
