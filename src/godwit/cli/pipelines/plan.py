"""`godwit pipeline plan`: who gets which message on which day."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from godwit.cli.args.connection import settings_for
from godwit.cli.args.options import Json, Store, Url
from godwit.cli.args.values import Misuse, duration, whole
from godwit.cli.exits import Exit
from godwit.cli.pipelines.options import Master
from godwit.cli.pipelines.progress import interrupt_on_sigterm, show_work
from godwit.cli.shown.output import print_json, remarks
from godwit.cli.shown.quantities import count_text

if TYPE_CHECKING:
    from godwit.pipeline.campaign.definition import QuietHours
    from godwit.pipeline.jobs.plan import PlanResult

EXAMPLES: Final = """Examples:

\b
  godwit pipeline plan u.csv --campaign bday -q bday --date born --at 09:00
  godwit pipeline plan u.csv --campaign bday -q bday --date born --at 09:00 \\
      --window 30m --quiet 22:00-08:00 --leap mar1 --dry-run
"""
LOCAL: Final = "local[*]"
WEEK: Final = 7
NOTHING: Final = timedelta(0)


def clock_time(text: str | time) -> time:
    """Parse a time of day such as 09:00."""
    if isinstance(text, time):
        return text
    try:
        return time.fromisoformat(text)
    except ValueError:
        raise Misuse(f"{text!r} is not a time of day", "Use hours and minutes, such as 09:00.") from None


def day(text: str | date) -> date:
    """Parse a day such as 2030-01-31."""
    if isinstance(text, date):
        return text
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Misuse(f"{text!r} is not a day", "Use ISO 8601, such as 2030-01-31.") from None


def quiet_hours(text: str | None) -> QuietHours | None:
    """Parse hours such as 22:00-08:00."""
    from godwit.pipeline.campaign.definition import QuietHours

    if text is None:
        return None
    start, dash, end = text.partition("-")
    if not dash:
        raise Misuse(f"{text!r} are not quiet hours", "Use two times of day, such as 22:00-08:00.")
    return QuietHours(clock_time(start), clock_time(end))


def plan(
    users: Annotated[
        str, typer.Argument(metavar="USERS", help="A table of users: Parquet, CSV, JSON lines.", show_default=False)
    ],
    campaign: Annotated[str, typer.Option("--campaign", metavar="NAME", help="The campaign.", show_default=False)],
    queue: Annotated[str, typer.Option("--queue", "-q", metavar="QUEUE", help="Where to.", show_default=False)],
    date_column: Annotated[
        str, typer.Option("--date", metavar="COLUMN", help="The column with the day that recurs.", show_default=False)
    ],
    at: Annotated[
        time,
        typer.Option("--at", parser=clock_time, metavar="TIME", help="The user's local time.", show_default=False),
    ],
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The messages' type.", show_default="the campaign")
    ] = None,
    user_column: Annotated[str, typer.Option("--user", metavar="COLUMN", help="The column with the id.")] = "user_id",
    zone_column: Annotated[
        str, typer.Option("--zone", metavar="COLUMN", help="The column with the zone.")
    ] = "timezone",
    payload: Annotated[
        list[str] | None,
        typer.Option("--payload", metavar="COLUMN", help="A column for the payload; may be repeated."),
    ] = None,
    start: Annotated[
        date | None,
        typer.Option("--start", parser=day, metavar="DAY", help="The first day (UTC).", show_default="today"),
    ] = None,
    days: Annotated[int, typer.Option("--days", parser=whole(1, 366), metavar="N", help="How many days.")] = WEEK,
    window: Annotated[
        timedelta,
        typer.Option("--window", parser=duration, metavar="DURATION", help="Spread over this time.", show_default="0s"),
    ] = NOTHING,
    quiet: Annotated[
        str | None, typer.Option("--quiet", metavar="TIME-TIME", help="Local hours at which nothing is delivered.")
    ] = None,
    leap: Annotated[
        str, typer.Option("--leap", metavar="RULE", help="29 February in other years: feb28, mar1 or skip.")
    ] = "feb28",
    max_per_minute: Annotated[
        int | None,
        typer.Option("--max-per-minute", parser=whole(1, 1_000_000_000), metavar="N", help="Refuse denser plans."),
    ] = None,
    rejects: Annotated[
        str | None, typer.Option("--rejects", metavar="FOLDER", help="Write users that cannot be planned there.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan and count, but change nothing.")] = False,
    master: Master = LOCAL,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Plan a campaign's messages for the coming days from a table of users, each at the user's local time.

    Planning again adds nothing: who moved is moved, and who no longer qualifies is cancelled.
    """
    from godwit.pipeline.campaign.definition import Campaign, Horizon, LeapDayRule
    from godwit.pipeline.jobs.plan import PlanSettings, run_plan

    if leap not in list(LeapDayRule):
        raise Misuse(f"{leap!r} is no rule for 29 February", f"Use one of {', '.join(LeapDayRule)}.")
    settings = PlanSettings(
        campaign=Campaign(
            name=campaign,
            queue=queue,
            type=type_ or campaign,
            date_column=date_column,
            local_time=at,
            user_column=user_column,
            zone_column=zone_column,
            payload_columns=tuple(payload or ()),
            window=window,
            quiet_hours=quiet_hours(quiet),
            leap=LeapDayRule(leap),
            max_per_minute=max_per_minute,
        ),
        horizon=Horizon.from_days(start or datetime.now(UTC).date(), timedelta(days=days)),
        users=users,
        rejects=rejects,
        store_url=settings_for(url, store).store_url,
        master=master,
        dry_run=dry_run,
    )
    with interrupt_on_sigterm(), show_work("plan", quiet=as_json):
        result = run_plan(settings)
    if as_json:
        print_json(result)
    else:
        show(result)
    return Exit.OK if result.planned else Exit.EMPTY


def show(result: PlanResult) -> None:
    """Print the result of a plan."""
    console = remarks()
    console.print(f"{count_text(result.planned, 'message')} planned.")
    if result.applied is not None:
        done = result.applied
        console.print(f"{done.added:,} added, {done.moved:,} moved, {done.cancelled:,} cancelled.")
    else:
        console.print("Nothing was changed (--dry-run).")
    if result.rejected:
        console.print(f"{count_text(result.rejected, 'user')} cannot be planned:")
        for reason, count in sorted(result.reasons.items(), key=lambda pair: -pair[1]):
            console.print(f"  {count:>9,}  {reason}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(plan)
