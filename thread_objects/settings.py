"""Settings: environment (`THREADS_*`) over `threads.toml` over defaults. Unknown keys are errors."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from thread_objects.contract import limits, names
from thread_objects.errors import ConfigError

SETTINGS_FILE = "threads.toml"


class Settings(BaseSettings):
    """What a worker or client needs to know. Every field may be set as `THREADS_<FIELD>` or in `threads.toml`.

    The Temporal connection itself (address, namespace, TLS, API key) may instead come from Temporal's own
    configuration: its TOML profile and its environment variables. A value given here wins.
    """

    model_config = SettingsConfigDict(
        env_prefix="THREADS_", toml_file=SETTINGS_FILE, extra="forbid", frozen=True, validate_default=True
    )

    database_url: str | None = None
    """`sqlite:///path` or `postgresql://...`. A worker needs it; a client reads faster with it."""
    sqlite_synchronous: str = Field("FULL", pattern="^(FULL|NORMAL|EXTRA)$")
    """FULL keeps every acknowledged fact through a power cut; NORMAL may lose the last ones."""
    database_pool: int = Field(8, ge=1, le=100)
    """Connections per worker process (PostgreSQL)."""

    address: str | None = None
    """Temporal server, host:port; else the profile's, else 127.0.0.1:7233."""
    namespace: str | None = None
    """Temporal namespace; else the profile's, else `default`."""
    profile: str | None = None
    """Profile of Temporal's own TOML file."""
    api_key: str | None = Field(None, repr=False)
    """API key of a Temporal service that asks for one."""
    tls: bool | None = None
    """Whether to use TLS; certificates come from the profile."""
    connect_timeout_s: float = Field(10.0, gt=0, le=300)
    """How long to try for the Temporal server before saying that it is out of reach."""

    task_queue: str = Field(names.DEFAULT_TASK_QUEUE, min_length=1, max_length=limits.NAME_CHARS_MAX)
    """Where clients and workers meet; the same for both."""
    agents: str | None = None
    """`package.module:registry`, the registry a worker serves."""
    extensions: str | None = None
    """`package.module:extensions`, what a worker serves beside agents."""
    authoriser: str | None = None
    """`package.module:callable`, asked before every operation; without one everything is allowed."""
    caller: str | None = Field(None, min_length=1, max_length=limits.NAME_CHARS_MAX)
    """Who asks, where an operation records nobody; told to the authoriser."""
    attempts: int = Field(32, ge=1, le=1_000)
    """Attempts that one worker process runs at a time, each on a thread of its own."""
    head_starts: int = Field(0, ge=0, le=64)
    """Attempts that may begin while the server still writes down their input: sooner outcomes, later receipts."""
    waves: int = Field(16, ge=1, le=1_000)
    """Waves of extensions that one worker process runs at a time, beside its Attempts."""
    workflow_cache: int = Field(1_000, ge=0, le=100_000)
    """Thread Objects kept in a worker's memory (about 57 KiB each when idle)."""
    drain_s: float = Field(10.0, ge=0, le=3_600)
    """How long SIGTERM lets running Attempts come to a Turn boundary before it hands them back."""

    placement: str = Field("none", min_length=1)
    """Which object owns a new Thread: `none` (one each), `hash:N` (one of N hosts), or `package.module:function`."""
    native_slots: int = Field(0, ge=0, le=limits.NATIVE_SLOTS_MAX)
    """Threads that one shared host works on at a time; 0 for two."""
    queue_depth: int = Field(limits.QUEUE_DEPTH_DEFAULT, ge=1, le=limits.QUEUE_DEPTH_MAX)
    """Unsettled Submissions of one Thread at most."""
    input_bytes: int = Field(limits.STORED_VALUE_BYTES_MAX, ge=1, le=limits.STORED_VALUE_BYTES_MAX)
    """Size of one input at most."""
    database_bytes: int = Field(limits.DATABASE_BYTES_DEFAULT, ge=1, le=limits.DATABASE_BYTES_MAX)
    """Past this size of the database nothing new is admitted."""

    heartbeat_timeout_ms: int = Field(5_000, ge=1_000, le=60_000)
    """A worker silent for this long has lost its Attempts. Beats go out every tenth of it, at least."""
    alarm_backoff_base_ms: int = Field(limits.ALARM_BACKOFF_BASE_MS, ge=1, le=60_000)
    """First wait after a pass that failed; doubles from then on."""
    alarm_backoff_cap_ms: int = Field(limits.ALARM_BACKOFF_CAP_MS, ge=1, le=3_600_000)
    """Longest such wait."""
    mark_age_ms: int = Field(10_000, ge=100, le=600_000)
    """A mark older than this is taken for a batch whose workflow task was lost."""
    mark_sweep_ms: int = Field(30_000, ge=100, le=600_000)
    """How often a worker looks for such marks."""

    retention_days: int | None = Field(None, ge=1, le=36_500)
    """Workers take the content of work that settled so many days ago; without it everything is kept."""
    retention_mode: Literal["redact", "delete"] = "redact"
    """`redact` takes what was said; `delete` also removes records from the beginning of each log."""

    continue_events: int = Field(limits.CONTINUE_EVENTS_MAX, ge=20, le=20_000)
    """A Thread Object takes a fresh history past so many events,"""
    continue_updates: int = Field(limits.CONTINUE_UPDATES_MAX, ge=1, le=1_500)
    """or so many updates,"""
    continue_bytes: int = Field(limits.CONTINUE_BYTES_MAX, ge=65_536, le=16_777_216)
    """or so many bytes of history."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then environment, then the TOML file in the working directory."""
        del dotenv_settings, file_secret_settings
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls))


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; overrides that are None are left out. Raises `ConfigError`, naming the first bad key."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or str(Path(SETTINGS_FILE))
        raise ConfigError(setting=where, reason=first["msg"]) from None
    except (OSError, ValueError) as error:
        raise ConfigError(setting=SETTINGS_FILE, reason=str(error)) from None
