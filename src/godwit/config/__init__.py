"""The only reader of godwit.toml and the environment: it turns both into `godwit.core.settings`."""

from godwit.config.addresses import without_password
from godwit.config.choosing import choose_broker_url
from godwit.config.describing import Described, describe
from godwit.config.loading import load

__all__ = ["Described", "choose_broker_url", "describe", "load", "without_password"]
