"""Every bound, as a named constant with its unit last. Values are the domain contract's unless said otherwise."""

# --- persisted JSON -------------------------------------------------------------------------------------
JSON_DEPTH_MAX = 64
JSON_COLLECTION_MAX = 4_096
JSON_NODES_MAX = 65_536
JSON_BYTES_MAX = 1_048_576

TEXT_CHARS_MAX = 65_536
NAME_CHARS_MAX = 256
ID_CHARS_MAX = 256
REASON_CHARS_MAX = 65_536
SERIAL_MAX = 2**53 - 1  # the port's own: marks and deployments stay exact in JSON and fit a column
DIAGNOSTIC_TAG_CHARS_MAX = 256
DIAGNOSTIC_MESSAGE_CHARS_MAX = 16_384
INDETERMINATE_REASON_CHARS_MAX = 4_096

# --- log ------------------------------------------------------------------------------------------------
BATCH_RECORDS_MAX = 256
READ_PAGE_RECORDS_MAX = 1_024
EXPORT_RECORDS_MAX = 131_072
RECORD_BYTES_MAX = 4 * 1_048_576
TURN_BYTES_MAX = 4 * 1_048_576
RESTORE_GAP = 2**20  # by how much a restore raises epochs: more claims than a lost future can hold
RESTORE_PAGE_THREADS = 256  # fenced in one transaction
CHECKPOINTS_KEPT = 2  # the newest, and the one before it for a reader that stands further back

# --- admission ------------------------------------------------------------------------------------------
STORED_VALUE_BYTES_MAX = 2_000_000
QUEUE_DEPTH_DEFAULT = 256
QUEUE_DEPTH_MAX = 100_000
DATABASE_BYTES_DEFAULT = 9_000_000_000
DATABASE_BYTES_MAX = 10_000_000_000
POLICY_CODE_CHARS_MAX = 128

# --- wire (the port's own: Temporal refuses payloads past 2 MiB and warns past 512 KiB) --------------------
SIGNAL_BYTES_MAX = 65_536
UPDATE_BYTES_MAX = 1_048_576
INBOX_BYTES_MAX = 1_572_864
BATCH_MUTATIONS_MAX = 64
BATCH_BYTES_MAX = 1_310_720

# --- ownership --------------------------------------------------------------------------------------------
LEASE_MS = 30_000
LEASE_RENEWAL_MS = 10_000
ABORT_POLL_MS = 500
SETTLEMENT_POLL_MS = 500
APPEND_TAIL_RETRIES_MAX = 8
ENDED_ATTEMPTS_MAX = 16

# --- maintenance --------------------------------------------------------------------------------------------
ALARM_BACKOFF_BASE_MS = 100
ALARM_BACKOFF_CAP_MS = 5_000
QUEUE_RETRY_MIN_MS = 1_000
QUEUE_RETRY_CAP_MS = 60_000
QUEUE_PARKED_RETRY_MS = 3_600_000
QUEUE_CHARGES_MAX = 8
RETRY_STALLS_MAX = 30
LANE_ID_CHARS_MAX = 256
PROGRESS_KEY_CHARS_MAX = 512
LANE_ALLOWANCE_MS_MAX = 300_000
LANES_MAX = 256  # the port's own: host lanes of one deployment, carried by every object
WAVE_TAKEN_MS_MAX = 60_000  # the port's own: a wave that no worker has begun by then fails
LANE_WAVES_MAX = 16  # the port's own: concurrent waves of one object, so that hundreds of due lanes stay a queue
LANES_NAMED_MAX = 16  # the port's own: lanes that one message, or the progress of one wave, may name
PUBLICATION_HOOK_MS = 10_000  # the port's own: after a mutation; the next batch waits for it
PASS_YIELD_AFTER_MS = 600_000
PASS_DEADLINE_MS = 840_000
RECOVERY_TIMEOUT_MS = 30_000
RECONCILE_TIMEOUT_MS = 10_000  # the port's own: one hung reconciler leaves time for its siblings
RECOVERY_OWNERS_MAX = 32
RECOVERY_THREADS_MAX = 32
RECOVERY_CURSOR_CHARS_MAX = 8_192
WORK_PAGE_ENTRIES = 128
WORK_PAGES_MAX = 8
WORK_REBUILD_RECORDS_MAX = 256
WORK_REBUILD_BYTES_MAX = 32 * 1_048_576
WORK_RETRY_MS = 60_000  # the port's own: a duty that waits for its owner is looked at again
DUTY_THREADS_MAX = 256  # the port's own: of one survey
NATIVE_SLOTS_SHARED = 2
AFTER_NATIVE_SLOTS = 2
BACKLOG_THREADS_MAX = 32
PROJECTION_TIMEOUT_MS = 30_000
EVENTS_ALLOWANCE_MS = 30_000
EVENTS_PAGE = 64  # the port's own: recovery events read at a time
NATIVE_SLOTS_SINGLE = 1
NATIVE_SLOTS_MAX = 64  # the port's own: Attempts of one host at a time, which its one history has to take in
HOST_THREADS_MAX = 2_048  # the port's own: Threads of a shared host that owe something, since a scan holds them all
HOST_PAGE_THREADS = 128  # the port's own: Threads in one survey of a shared host, some 25 KB of its history
HOST_ENDED_THREADS_MAX = 256  # the port's own: Threads of a host whose lost Attempts are remembered

# --- application alarms (the port's own: they travel with the workflow's state) ------------------------------
NAMED_ALARMS_MAX = 1_024
ALARMS_BYTES_MAX = 196_608  # of all alarms of an object: beside a full inbox it still fits a payload of 2 MiB
ALARM_PAYLOAD_BYTES_MAX = 16_384  # a reference and some facts; documents belong elsewhere
ALARM_AHEAD_MS_MAX = 315_360_000_000  # ten years: no clock's range and no server's bound on timers is near
ALARM_RETRY_BASE_MS = 1_000
ALARM_RETRY_CAP_MS = 300_000  # a handler that is missing for a day costs some 300 tries
ALARM_TIMEOUT_MS = 60_000  # start to close of one delivery
ALARM_PICKUP_MS = 15_000  # for a worker with handlers to take a delivery: without any, the alarm says so
ALARM_GRACE_MS = 5_000  # for an asynchronous handler to end by itself once its delivery is cancelled
ALARM_DELIVERIES_MAX = 4  # of one object at a time: they share the worker's slots with Attempts

# --- faults ---------------------------------------------------------------------------------------------------
FAULT_RETRY_BASE_MS = 5_000
FAULT_RETRY_CAP_MS = 60_000
FAULT_ATTEMPTS_MAX = 2_147_483_647

# --- report (the port's own) ----------------------------------------------------------------------------------
REFUSALS_MAX = 64
PASSES_MAX = 16
FAULTS_MAX = 64
REPORT_ROWS_MAX = 256
OPEN_CALLS_MAX = 32
LANE_FAILURES_MAX = 64

# --- operator (cancellation hints and denial reasons are the contract's, the rest the port's own) ---------------
EXPLAINED_ROWS_MAX = 32
EXPLAINED_CALLS_MAX = 64
EXPLAINED_TEXT_CHARS_MAX = 512  # of a reason or a name that somebody, or a model, chose
EXPLAINED_BYTES_MAX = 1_048_576  # of a page: it travels through a workflow's history
OBLIGATIONS_PAGE_MAX = 256
OBLIGATIONS_SCAN_MAX = 1_024  # rows that one page looks at, so that a filter that matches nothing stays bounded
CANCELLATION_HINTS_MAX = 1_024
DENIAL_CHARS_MAX = 4_096
AUTHORISER_TIMEOUT_MS = 2_000  # a batch of mutations has 3 s in all

# --- run policy defaults (the port's own) -----------------------------------------------------------------------
RUN_TURNS_MAX = 100
RUN_TOOL_CALLS_MAX = 4_096
RUN_DURATION_MS = 3_600_000
STEERING_PER_SEAM = 1
STEERING_PER_SEAM_MAX = 16  # what one request may be surprised by
MODEL_TIMEOUT_MS = 300_000
MODEL_RETRIES_MAX = 3
MODEL_RETRY_BASE_MS = 500
MODEL_RETRY_CAP_MS = 8_000
MODEL_RETRY_AFTER_MS_MAX = 60_000
TOOL_TIMEOUT_MS = 300_000
CALL_TIMEOUT_MS_MAX = 780_000  # a call must fit into one Attempt (14 min) with room to hand back
TOOL_RESULT_BYTES_MAX = 262_144
TOOL_RESULT_EXCERPT_BYTES = 16_384  # of the head and of the tail of a truncated result

# --- continue-as-new (the port's own, far below the server's suggestion) -----------------------------------------
CONTINUE_EVENTS_MAX = 1_000
CONTINUE_UPDATES_MAX = 1_000
CONTINUE_BYTES_MAX = 1_048_576
