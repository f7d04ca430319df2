"""A backend of Django's tasks: messages whose type is the task's path.

Before Django 6 the package django-tasks has the same classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from socket import gethostname
from typing import Any, Final

from django.conf import settings
from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string

from godwit.core.errors import ExtraRequired
from godwit.core.failures.judgement import Permanent
from godwit.core.journal.statuses import MessageStatus, Status
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import MessageId
from godwit.django.manager import DjangoManager, the_manager
from godwit.runtime.worker.consumer import current_delivery

_PACKAGE: Final = next((name for name in ("django.tasks", "django_tasks") if find_spec(name)), None)
if _PACKAGE is None:
    raise ExtraRequired("The backend of Django's tasks", "django")
_base: Final[Any] = import_module(f"{_PACKAGE}.base")
_Backend: Final[Any] = import_module(f"{_PACKAGE}.backends.base").BaseTaskBackend
_exceptions: Final[Any] = import_module(f"{_PACKAGE}.exceptions")
_signals: Final[Any] = import_module(f"{_PACKAGE}.signals")

GROUP: Final = "tasks"
"""The group of a queue that runs its tasks."""
_STATUSES: Final = {
    Status.SCHEDULED: "READY",
    Status.PENDING: "READY",
    Status.PROCESSING: "RUNNING",
    Status.COMPLETED: "SUCCESSFUL",
    Status.FAILED: "FAILED",
    Status.EXPIRED: "FAILED",
    Status.CANCELLED: "FAILED",
}


class GodwitBackend(_Backend):
    """Enqueues a task as a message, and finds its result while the store keeps it.

    `OPTIONS = {"OUTBOX": True}`: inside `atomic()` a task is enqueued through the outbox of the database (`DATABASE`,
    else "default"), so that it runs if, and only if, the transaction commits; the store has to be in that database.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Publish the task; return its result, which is READY."""
        self.validate_task(task)
        manager = the_manager()
        result = self._result(task, "", "READY", list(args), dict(kwargs), enqueued_at=timezone.now())
        message = Message(
            queue=task.queue_name,
            type=task.module_path,
            payload={"args": result.args, "kwargs": result.kwargs, "backend": self.alias},
            priority=(task.priority - _base.TASK_MIN_PRIORITY) // 2,
            scheduling=None if task.run_after is None else Scheduling(deliver_at=task.run_after),
        )
        connection = connections[self.options.get("DATABASE", "default")]
        through_outbox = self.options.get("OUTBOX", False) and connection.in_atomic_block
        publisher = manager.sync.outbox(connection) if through_outbox else manager.sync
        object.__setattr__(result, "id", publisher.enqueue(message))
        _signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return what the store knows of a task; its arguments and errors are in the journal and are left out."""
        found: MessageStatus | None = the_manager().sync.status(MessageId(result_id))
        group = next((one for one in found.groups if one.group == GROUP), None) if found is not None else None
        if found is None or group is None:
            raise _exceptions.TaskResultDoesNotExist(result_id)
        result = self._result(
            import_string(found.type),
            found.id,
            _STATUSES[group.status],
            enqueued_at=found.created_at,
            started_at=group.last_attempt,
            last_attempted_at=group.last_attempt,
            finished_at=group.processed_at,
            worker_ids=[group.worker or ""] * group.attempts,
        )
        object.__setattr__(result, "_return_value", group.result)
        return result

    def _result(
        self,
        task: Any,
        result_id: str,
        status: str,
        args: list[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        **times: Any,
    ) -> Any:
        facts: dict[str, Any] = dict.fromkeys(("enqueued_at", "started_at", "last_attempted_at", "finished_at"))
        facts |= {"args": args or [], "kwargs": kwargs or {}, "errors": [], "worker_ids": [], **times}
        return _base.TaskResult(
            task=task, id=result_id, status=_base.TaskResultStatus[status], backend=self.alias, **facts
        )

    def run(self, message: Message) -> Any:
        """Run a task in a worker's thread; what it raises is judged as any handler's error."""
        task, content = _task_of(message), message.payload
        began, message_id = timezone.now(), MessageId(message.id or "")
        times = {"enqueued_at": message.created_at, "started_at": began, "last_attempted_at": began}
        result = self._result(task, message_id, "RUNNING", content["args"], content["kwargs"], **times)
        result.worker_ids.extend([gethostname()] * current_delivery(message_id).delivery.attempt)
        _signals.task_started.send(type(self), task_result=result)
        context = (_base.TaskContext(task_result=result),) if task.takes_context else ()
        outcome = "FAILED"
        try:
            value = task.call(*context, *result.args, **result.kwargs)
            outcome = "SUCCESSFUL"
        finally:
            object.__setattr__(result, "status", _base.TaskResultStatus[outcome])
            object.__setattr__(result, "finished_at", timezone.now())
            _signals.task_finished.send(type(self), task_result=result)
        return value


def _task_of(message: Message) -> Any:
    """Return the task that a message names; any other message of the queue can never be run."""
    try:
        task = import_string(message.type)
    except ImportError as error:
        raise Permanent(f"{message.type} is no task of this project: {error}") from error
    content = message.payload
    if not isinstance(task, _base.Task):
        raise Permanent(f"{message.type} is no task, but of type {type(task).__name__}")
    if not (
        isinstance(content, dict) and isinstance(content.get("args"), list) and isinstance(content.get("kwargs"), dict)
    ):
        raise Permanent("the payload has no args and kwargs")
    return task


def serve_tasks(manager: DjangoManager) -> None:
    """Register a consumer for each queue of each backend of ours in the setting TASKS."""
    for alias, said in getattr(settings, "TASKS", {}).items():
        kind = import_string(said["BACKEND"])
        if issubclass(kind, GodwitBackend):
            backend = kind(alias, said)
            for queue in sorted(backend.queues):
                manager.consumer(queue, group=GROUP)(backend.run)
