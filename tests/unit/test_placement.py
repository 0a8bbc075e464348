"""Placement: the same object for the same Thread in every process, and a typed refusal of what is none."""

import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT
from thread_objects.errors import ConfigError, InvalidInput
from thread_objects.objects import object_config
from thread_objects.placement import Placement
from thread_objects.settings import load_settings


def test_without_a_placement_a_thread_is_its_own_object():
    """One object for each Thread, and no host."""
    placement = Placement()
    assert (placement.object_id("orders"), placement.shared) == ("orders", False)
    assert object_config(load_settings()).shared_host is False


def test_hashing_spreads_threads_over_so_many_hosts():
    """Every host gets its part; ids outside ASCII are placed too."""
    placement = Placement("hash:8")
    hosts = [placement.object_id(f"thread-{n}") for n in range(400)]
    assert placement.shared and sorted(set(hosts)) == [f"host-{n}-of-8" for n in range(8)]
    assert min(hosts.count(host) for host in set(hosts)) > 20
    assert placement.object_id("übung") in set(hosts)


def test_a_hash_is_the_same_in_every_process():
    """Not Python's own: that one is drawn anew for each."""
    code = "from thread_objects.placement import Placement; print(Placement('hash:97').object_id('orders'))"
    placed = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert placed == {Placement("hash:97").object_id("orders")} == {"host-86-of-97"}


def test_a_function_places_as_it_likes():
    """`package.module:function`, given the thread id."""
    assert Placement("tests.placing:by_prefix").object_id("shop.orders") == "shop"


@pytest.mark.parametrize(
    "setting", ["hash:0", "hash:-1", "hash:", "hash:200000", "nothing", "tests.placing:absent", "tests.absent:f", ":"]
)
def test_what_places_nothing_is_refused_before_anything_is_opened(setting: str):
    """A typed refusal that names the setting."""
    with pytest.raises(ConfigError) as refused:
        Placement(setting)
    assert refused.value.setting == "placement"


@pytest.mark.parametrize("answer", ["", "x" * 257, None, 7])
def test_an_answer_that_is_no_id_is_refused(answer: object, monkeypatch: pytest.MonkeyPatch):
    """Nothing is sent to an object that cannot be."""
    monkeypatch.setattr("tests.placing.by_prefix", lambda _thread: answer)
    with pytest.raises(InvalidInput, match="placement"):
        Placement("tests.placing:by_prefix").object_id("orders")


def test_settings_make_hosts():
    """Whoever starts an object, client or worker, starts the same."""
    config = object_config(load_settings(placement="hash:4", native_slots=6))
    assert (config.shared_host, config.native_slots) == (True, 6)
