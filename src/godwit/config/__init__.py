"""The only reader of godwit.toml and the environment: it turns both into `godwit.core.settings`.

Modules:

    loader          puts it together: arguments over the environment over the file over defaults
    keys            everything that godwit.toml and the environment can say, one line per key
    values          from what a file or a variable says to a value, with its unit and the form allowed
    addresses       URLs of brokers and stores, shown without passwords
    sources         where values are found, and the place to blame for a bad one
    toml_lines      on which line of a TOML document a key stands
    broker_choice   which broker is meant when several are named
    queues          from the queues of a file to queue configurations
    fields          reading and replacing fields deep inside frozen values
    description     the effective configuration as rows, with origins, without secrets
"""

from godwit.config.addresses import without_password
from godwit.config.broker_choice import choose_broker_url
from godwit.config.description import Described, describe
from godwit.config.loader import load

__all__ = ["Described", "choose_broker_url", "describe", "load", "without_password"]
