"""mq.sync: what an application holds, for code without an event loop; every call has the types of what it calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from godwit.runtime.sync_bridge import SyncBridge

if TYPE_CHECKING:
    from godwit.admin.control import QueueControl
    from godwit.admin.dead_letters import DeadLetterQueueHandler
    from godwit.manager import MessageQueueManager
    from godwit.runtime.scheduler.scheduler import MessageScheduler
    from godwit.telemetry.monitor import QueueMonitor


class SyncManager(SyncBridge):
    """`mq.sync.enqueue(...)` is `await mq.enqueue(...)`; `mq.sync.run(coroutine)` runs anything else.

    It works in threads of a program with a running event loop, too; inside the loop itself it is refused.
    """

    def __init__(self, manager: MessageQueueManager) -> None:
        super().__init__(manager)
        self._mq = manager
        self.enqueue = self.blocking(manager.enqueue)
        self.enqueue_many = self.blocking(manager.enqueue_many)
        self.schedule_message = self.blocking(manager.schedule_message)
        self.discard = self.blocking(manager.discard)
        self.status = self.blocking(manager.status)
        self.dequeue = self.blocking(manager.dequeue)
        self.acknowledge_message = self.blocking(manager.acknowledge_message)
        self.reject_message = self.blocking(manager.reject_message)
        self.instances = self.blocking(manager.instances)
        self.declare = self.blocking(manager.declare)
        self.dead_letters = SyncDeadLetters(self, manager.dead_letters)
        self.control = SyncControl(self, manager.control)
        self.scheduler = SyncScheduler(self, manager.scheduler)
        self.monitor = SyncMonitor(self, manager.monitor)

    if not TYPE_CHECKING:  # to a type checker there is only what is above

        def __getattr__(self, name: str) -> NoReturn:
            """Say what a name that is not here is called."""
            if not name.startswith("_") and hasattr(self._mq, name):
                raise AttributeError(f"{name!r} is not an asynchronous method of the manager; call mq.{name} directly")
            raise AttributeError(f"mq.sync has no {name!r}")


class SyncDeadLetters:
    """`mq.dead_letters` without an event loop."""

    def __init__(self, bridge: SyncBridge, letters: DeadLetterQueueHandler) -> None:
        self.count = bridge.blocking(letters.count)
        self.discard = bridge.blocking(letters.discard)
        self.discard_all = bridge.blocking(letters.discard_all)
        self.edit_and_replay = bridge.blocking(letters.edit_and_replay)
        self.inspect = bridge.blocking(letters.inspect)
        self.letters = bridge.iterating(letters.letters)
        self.patterns = bridge.blocking(letters.patterns)
        self.replay = bridge.blocking(letters.replay)
        self.replay_all = bridge.blocking(letters.replay_all)


class SyncControl:
    """`mq.control` without an event loop."""

    def __init__(self, bridge: SyncBridge, control: QueueControl) -> None:
        self.drain = bridge.blocking(control.drain)
        self.holds = bridge.blocking(control.holds)
        self.left = bridge.blocking(control.left)
        self.pause = bridge.blocking(control.pause)
        self.purge = bridge.blocking(control.purge)
        self.resume = bridge.blocking(control.resume)
        self.wait_until_empty = bridge.blocking(control.wait_until_empty)


class SyncScheduler:
    """`mq.scheduler` without an event loop; `godwit scheduler` runs it."""

    def __init__(self, bridge: SyncBridge, scheduler: MessageScheduler) -> None:
        self.accept = bridge.blocking(scheduler.accept)
        self.add = bridge.blocking(scheduler.add)
        self.analytics = bridge.blocking(scheduler.analytics)
        self.campaign = bridge.blocking(scheduler.campaign)
        self.cancel = bridge.blocking(scheduler.cancel)
        self.cancel_campaign = bridge.blocking(scheduler.cancel_campaign)
        self.firing = bridge.blocking(scheduler.firing)
        self.get = bridge.blocking(scheduler.get)
        self.list = bridge.blocking(scheduler.list)
        self.pause = bridge.blocking(scheduler.pause)
        self.preview = bridge.blocking(scheduler.preview)
        self.put = bridge.blocking(scheduler.put)
        self.reschedule = bridge.blocking(scheduler.reschedule)
        self.resume = bridge.blocking(scheduler.resume)
        self.schedule = bridge.blocking(scheduler.schedule)
        self.schedule_many = bridge.blocking(scheduler.schedule_many)
        self.schedulers = bridge.blocking(scheduler.schedulers)
        self.status = bridge.blocking(scheduler.status)
        self.tick = bridge.blocking(scheduler.tick)
        self.upcoming = bridge.blocking(scheduler.upcoming)
        self.update = bridge.blocking(scheduler.update)


class SyncMonitor:
    """`mq.monitor` without an event loop."""

    def __init__(self, bridge: SyncBridge, monitor: QueueMonitor) -> None:
        self.check_alert_conditions = bridge.blocking(monitor.check_alert_conditions)
        self.get_health_status = bridge.blocking(monitor.get_health_status)
        self.get_metrics = bridge.blocking(monitor.get_metrics)
        self.get_readiness = bridge.blocking(monitor.get_readiness)
        self.is_healthy = bridge.blocking(monitor.is_healthy)
        self.refresh = bridge.blocking(monitor.refresh)
        self.render_metrics = bridge.blocking(monitor.render_metrics)
        self.tick = bridge.blocking(monitor.tick)
