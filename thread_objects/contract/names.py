"""Temporal names: explicit, stable strings. Moving a module must never rename a running thread's type."""

WORKFLOW_TYPE = "ThreadObject"
DEFAULT_TASK_QUEUE = "thread-objects"
PRODUCER_PREFIX = "thread-object"

# Every mutation exists as a signal and as an update of the same name.
SUBMIT = "submit"
ABORT = "abort"
RESOLVE_APPROVAL = "resolve_approval"
RESOLVE_UNKNOWN = "resolve_unknown"
WAKE = "wake"
SCHEDULE = "schedule"
SET_ALARM = "set_alarm"
CANCEL_ALARM = "cancel_alarm"
RETRY = "retry"  # an update only
MUTATIONS = (SUBMIT, ABORT, RESOLVE_APPROVAL, RESOLVE_UNKNOWN, WAKE)

QUERY_REPORT = "report"
QUERY_STATUS = "status"
QUERY_ALARM = "alarm"
QUERY_ALARMS = "alarms"
QUERY_LANES = "lanes"
QUERY_GENERATION = "generation"
QUERY_PASSES = "passes"
QUERY_RECOVERY_STATUS = "recovery_status"

ACTIVITY_APPLY = "apply_mutations"
ACTIVITY_SURVEY = "survey"
ACTIVITY_CLEAR_MARK = "clear_mark"
ACTIVITY_RECOVER = "recover"
ACTIVITY_ATTEMPT = "attempt"
ACTIVITY_DELIVER_ALARM = "deliver_alarm"

# Waves of users' extensions. They have a queue of their own, so that they never take the place of an Attempt.
ACTIVITY_PUBLISH = "publication_wave"
ACTIVITY_PROJECT = "projection_wave"
ACTIVITY_MESSAGES = "message_wave"
ACTIVITY_LANE = "lane_wave"
ACTIVITY_RECOVERY_EVENTS = "recovery_events_wave"
WAVES_QUEUE_SUFFIX = ":waves"

# A stateless workflow of one local activity, for clients that have no database of their own.
READ_WORKFLOW_TYPE = "ThreadRead"
ACTIVITY_READ = "read"

# As well for operators: what they ask, and what they have executed.
INSPECT_WORKFLOW_TYPE = "ThreadInspect"
ACTIVITY_INSPECT = "inspect"
ACTIVITY_VERIFY = "verify"
ACTIVITY_RETRY = "retry"
