"""Settings come from arguments, environment and file, and say what is wrong with them."""

from pathlib import Path

import pytest

from thread_objects.connection import DEFAULT_ADDRESS, DEFAULT_NAMESPACE, resolve
from thread_objects.errors import ConfigError, ServerUnavailable
from thread_objects.settings import SETTINGS_FILE, load_settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of one's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_arguments_win_over_environment_over_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest word counts."""
    (folder / SETTINGS_FILE).write_text('task_queue = "file"\nnamespace = "file"\naddress = "file:1"\n')
    monkeypatch.setenv("THREADS_NAMESPACE", "environment")
    monkeypatch.setenv("THREADS_ADDRESS", "environment:1")
    settings = load_settings(address="argument:1")
    assert (settings.task_queue, settings.namespace, settings.address) == ("file", "environment", "argument:1")


@pytest.mark.parametrize(
    ("name", "value"),
    [("alarm_backoff_base_ms", 0), ("queue_depth", 0), ("queue_depth", 100_001), ("heartbeat_timeout_ms", 5)],
)
def test_a_setting_outside_its_bound_is_named(name: str, value: int) -> None:
    """LIM-015: nothing is opened."""
    with pytest.raises(ConfigError) as refused:
        load_settings(**{name: value})
    assert refused.value.setting == name


def test_unknown_keys_are_errors(folder: Path) -> None:
    """A typing error in the file is not a silent default."""
    (folder / SETTINGS_FILE).write_text('task_queu = "x"\n')
    with pytest.raises(ConfigError) as refused:
        load_settings()
    assert refused.value.setting == "task_queu"


def test_a_broken_file_is_named(folder: Path) -> None:
    """TOML that does not parse."""
    (folder / SETTINGS_FILE).write_text("task_queue = \n")
    with pytest.raises(ConfigError) as refused:
        load_settings()
    assert refused.value.setting == SETTINGS_FILE


def test_secrets_do_not_show() -> None:
    """Settings may be logged."""
    assert "hunter2" not in repr(load_settings(api_key="hunter2"))


def test_the_connection_comes_from_temporals_own_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TOML profile with TLS and API key, environment over it, our settings over both."""
    path = folder / "temporal.toml"
    path.write_text(
        '[profile.default]\naddress = "profile:7233"\nnamespace = "profile"\n'
        '[profile.cloud]\naddress = "cloud:7233"\napi_key = "secret"\nnamespace = "prod"\n'
        '[profile.cloud.tls]\nserver_name = "cloud.example"\n'
    )
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(path))
    plain = resolve(load_settings())
    assert (plain.address, plain.namespace) == ("profile:7233", "profile")
    cloud = resolve(load_settings(profile="cloud"))
    assert (cloud.address, cloud.api_key, cloud.namespace) == ("cloud:7233", "secret", "prod")
    assert cloud.tls is not None
    assert cloud.to_client_connect_config()["tls"].domain == "cloud.example"
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "environment")
    assert resolve(load_settings()).namespace == "environment"
    assert resolve(load_settings(namespace="ours", address="ours:1")).address == "ours:1"


def test_without_anything_the_local_server_is_meant() -> None:
    """The defaults are Temporal's."""
    profile = resolve(load_settings())
    assert (profile.address, profile.namespace) == (DEFAULT_ADDRESS, DEFAULT_NAMESPACE)


def test_an_unknown_profile_is_a_config_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a traceback of the SDK."""
    path = folder / "temporal.toml"
    path.write_text('[profile.default]\naddress = "profile:7233"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(path))
    with pytest.raises(ConfigError):
        resolve(load_settings(profile="no-such"))


async def test_a_server_out_of_reach_is_said_within_the_bound() -> None:
    """A closed port on loopback."""
    from thread_objects.client import ThreadClient

    with pytest.raises(ServerUnavailable) as refused:
        await ThreadClient.connect(load_settings(address="127.0.0.1:9", connect_timeout_s=0.3))
    assert refused.value.address == "127.0.0.1:9"
