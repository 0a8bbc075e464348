"""A stateless workflow of one local activity: the reads of clients that have no database of their own."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from thread_objects.contract import names
from thread_objects.contract.activities import ReadAnswer, ReadRequest


@workflow.defn(name=names.READ_WORKFLOW_TYPE)
class ThreadRead:
    """One read, one answer; keeps nothing."""

    @workflow.run
    async def run(self, request: ReadRequest) -> ReadAnswer:
        """Answer from the database, within 3 s or with a failure that the client may repeat."""
        answer: ReadAnswer = await workflow.execute_local_activity(
            names.ACTIVITY_READ,
            request,
            result_type=ReadAnswer,
            schedule_to_close_timeout=timedelta(seconds=3),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=50), maximum_attempts=3),
        )
        return answer
