"""The `godwit` command with the project's broker, store and consumers: `manage.py godwit worker --processes 2`."""

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from godwit.cli import main
from godwit.django.manager import the_manager

_TARGET = "godwit.django:mq"


class Command(BaseCommand):
    """Everything behind `manage.py godwit` is an argument of `godwit`."""

    help = "The godwit command (worker, queues, dlq, ...) with the broker and the store of this project."

    def run_from_argv(self, argv: list[str]) -> None:
        """Take the arguments as they are: Django would read options of its own from them."""
        self.handle(words=argv[2:])

    def add_arguments(self, parser: CommandParser) -> None:
        """Take any arguments, for `call_command`."""
        parser.add_argument("words", nargs="*")

    def handle(self, *_arguments: Any, words: list[str], **_options: Any) -> None:
        """Run the command; this ends the process with its exit code."""
        settings = the_manager().settings
        os.environ["GODWIT_URL"] = settings.broker_url
        if settings.store_url is not None:
            os.environ["GODWIT_STORE_URL"] = settings.store_url
        # A supervisor starts its workers with the words of its own command line, and where it was started.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (sys.path[0], os.environ.get("PYTHONPATH"))))
        sys.argv = ["godwit", *(["worker", _TARGET, *words[1:]] if words[:1] == ["worker"] else words)]
        main()
