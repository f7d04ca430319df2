"""Putting it together: arguments over the environment over the file over defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from godwit.config.broker_choice import choose_broker_url
from godwit.config.fields import with_fields
from godwit.config.keys import SETTINGS
from godwit.config.queues import QueueReader
from godwit.config.sources import Document, FoundValue, from_arguments, from_environment, read_document, unknown_key
from godwit.core.errors import ConfigurationError
from godwit.core.settings import Settings


def load(
    file: str | Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> Settings:
    """Return the settings that a file, the environment and the caller's `arguments` (by key) add up to.

    Nothing is read but the file named and the environment, the process's own unless one is given.
    """
    document = Document("", "") if file is None else read_document(Path(file))
    return settings_from(document, os.environ if environment is None else environment, arguments or {})


def settings_from(document: Document, environment: Mapping[str, str], arguments: Mapping[str, object]) -> Settings:
    """Return the settings of a document, an environment and arguments; nothing else is looked at."""
    for word in arguments:
        if word not in SETTINGS:
            raise unknown_key("argument", word, "", tuple(SETTINGS))
    in_file = document.read(document.tables, (), SETTINGS, ("queues",))
    found: dict[str, FoundValue] = {}
    for name, key in SETTINGS.items():
        given = from_arguments(arguments, key) or from_environment(environment, key)
        if given is not None or name in in_file:
            found[name] = given or in_file[name]
    broker = choose_broker_url(found)
    settings = with_fields(Settings(), [(SETTINGS[name].path, given.value) for name, given in found.items()])
    origins = {name: given.origin for name, given in found.items()} | {"broker_url": broker.origin}
    settings = replace(settings, broker_url=broker.value, origins=origins)
    settings = _with_health_check(_with_store(settings))
    _check(settings)
    reader = QueueReader(document, settings)
    return _with_stream(replace(settings, queues=reader.queues(), origins=origins | reader.origins))


def _with_stream(settings: Settings) -> Settings:
    """Declare the queue that REDIS_STREAM and REDIS_GROUP name, where a Redis server is used and either is set."""
    named = {"redis.stream", "redis.group"} & settings.origins.keys()
    stream = settings.redis.stream
    if not named or not settings.broker_url.startswith("redis") or stream in {queue.name for queue in settings.queues}:
        return settings
    queue = replace(settings.queue(stream), groups=(settings.group(settings.redis.group),))
    return replace(settings, queues=(*settings.queues, queue))


def _with_store(settings: Settings) -> Settings:
    """Let a SQLite broker's file hold the state too; with other brokers there is none until one is configured."""
    if "store_url" in settings.origins:
        return settings
    own_file = settings.broker_url if settings.broker_url.startswith("sqlite:") else None
    return replace(settings, store_url=own_file)


def _with_health_check(settings: Settings) -> Settings:
    """Let an answer take no longer than the interval where no timeout is configured."""
    check = settings.consumer.health_check
    if "consumer.health_check.timeout" in settings.origins or check.timeout <= check.interval:
        return settings
    return with_fields(settings, [(("consumer", "health_check", "timeout"), check.interval)])


def _check(settings: Settings) -> None:
    """Refuse values that are possible one by one but not together."""
    check, retry = settings.consumer.health_check, settings.defaults.retry_policy
    if check.timeout > check.interval:
        raise _together(settings, "consumer.health_check.timeout", "consumer.health_check.interval", "is longer than")
    if retry.initial_delay is not None and retry.max_delay is not None and retry.initial_delay > retry.max_delay:
        first, second = "defaults.retry_policy.initial_delay", "defaults.retry_policy.max_delay"
        raise _together(settings, first, second, "is longer than")


def _together(settings: Settings, first: str, second: str, relation: str) -> ConfigurationError:
    origins = [settings.origins[key] for key in (first, second) if key in settings.origins]
    return ConfigurationError(", ".join(origins), f"{first} {relation} {second}", "Change one of them.")
