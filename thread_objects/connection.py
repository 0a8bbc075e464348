"""Reaching the Temporal server: settings over Temporal's own profile and environment over its defaults."""

import asyncio
import atexit
import re
import time
from dataclasses import replace
from functools import cache

from temporalio.client import Client
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError

from thread_objects.converter import data_converter
from thread_objects.errors import ConfigError, ServerUnavailable
from thread_objects.settings import Settings

DEFAULT_ADDRESS = "127.0.0.1:7233"
DEFAULT_NAMESPACE = "default"
_SYSTEM_MESSAGE = re.compile(r'message: "([^"]+)"')


@cache
def _let_callbacks_end() -> None:
    # A thread of the SDK may still be on its way out of a callback when the program ends; finalizing the
    # interpreter under it aborts the process (sdk-python#300). Exit handlers run while that is still harmless.
    atexit.register(time.sleep, 0.05)


def resolve(settings: Settings) -> ClientConfigProfile:
    """The connection in force. `ConfigError` when Temporal's TOML file or profile cannot be read."""
    try:
        profile = ClientConfigProfile.load(profile=settings.profile)
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigError(setting="profile", reason=str(error)) from None
    return replace(
        profile,
        address=settings.address or profile.address or DEFAULT_ADDRESS,
        namespace=settings.namespace or profile.namespace or DEFAULT_NAMESPACE,
        api_key=settings.api_key or profile.api_key,
    )


async def connect(settings: Settings) -> Client:
    """A connected client with the pydantic converter.

    Tries for `settings.connect_timeout_s`; then raises `ServerUnavailable` naming the address.
    """
    _let_callbacks_end()
    profile = resolve(settings)
    config = profile.to_client_connect_config()
    if settings.tls is not None and not (settings.tls and config.get("tls")):
        config["tls"] = settings.tls
    address = str(config["target_host"])
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            while True:
                try:
                    return await Client.connect(**config, data_converter=data_converter)
                except RuntimeError as error:
                    # The bridge reports an unreachable or refusing server as a RuntimeError; it may be starting.
                    last = error
                    await asyncio.sleep(0.1)
    except TimeoutError:
        reason = _first_line(locals().get("last")) or "no answer"
        raise ServerUnavailable(address=address, reason=reason) from None
    except RPCError as error:
        raise ServerUnavailable(address=address, reason=_first_line(error)) from None


def _first_line(error: object) -> str:
    # The bridge tells a refused connection as nested debug output; the system's own words are inside.
    if found := _SYSTEM_MESSAGE.search(str(error)):
        return found[1].lower()
    return (str(error).splitlines() or [""])[0][:200] if error is not None else ""
