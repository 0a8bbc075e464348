"""A stateless workflow of one activity: the questions of operators whose client has no database of its own."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from thread_objects.contract import names
from thread_objects.contract.operations import InspectAnswer, InspectRequest, Operation

VERIFY_TIMEOUT = timedelta(minutes=10)
HEARTBEAT_TIMEOUT = timedelta(seconds=10)


@workflow.defn(name=names.INSPECT_WORKFLOW_TYPE)
class ThreadInspect:
    """One question, one answer; keeps nothing."""

    @workflow.run
    async def run(self, request: InspectRequest) -> InspectAnswer:
        """Answer within 3 s, a verification within 10 minutes, or fail so that the client may ask again."""
        if request.operation is Operation.VERIFY:
            verified: InspectAnswer = await workflow.execute_activity(
                names.ACTIVITY_VERIFY,
                request,
                result_type=InspectAnswer,
                start_to_close_timeout=VERIFY_TIMEOUT,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=RetryPolicy(maximum_attempts=3),
            )
            return verified
        answer: InspectAnswer = await workflow.execute_local_activity(
            names.ACTIVITY_INSPECT,
            request,
            result_type=InspectAnswer,
            schedule_to_close_timeout=timedelta(seconds=3),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=50), maximum_attempts=3),
        )
        return answer
