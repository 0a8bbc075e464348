"""The verbs of the `threads` command."""

import typer

from thread_objects.cli import explaining, keeping, operating, reading, serving, submissions
from thread_objects.cli.demo import demo

HELP = (
    "Durable threads for AI agents on Temporal.\n\n"
    "Exit codes: 0 done (a Settlement: completed), 1 unexpected, 2 wrong usage or setting, 3 settled failed (of "
    "verify and --check: something was found), "
    "4 settled aborted, 5 refused, 6 not settled in time, 7 server or database out of reach, 130 Ctrl-C."
)

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=HELP)

RUN, USE, OPERATE, KEEP = "Run", "Use", "Operate", "Keep"
VERBS = {
    RUN: (demo, serving.dev, serving.worker),
    USE: (submissions.submit, submissions.wait, submissions.status, reading.log),
    OPERATE: (
        reading.report,
        reading.alarms,
        operating.approve,
        operating.deny,
        operating.resolve,
        submissions.abort,
        operating.wake,
        explaining.explain,
        explaining.obligations,
        explaining.retry,
    ),
    KEEP: (
        keeping.export,
        keeping.import_thread,
        keeping.retain,
        keeping.restore_fence,
        keeping.rebuild_work,
        explaining.verify,
    ),
}
for panel, verbs in VERBS.items():
    for verb in verbs:
        app.command(rich_help_panel=panel)(verb)
