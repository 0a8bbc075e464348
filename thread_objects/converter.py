"""How values become payloads: pydantic's JSON, with the schemas of a process built once.

The SDK makes a converter anew for each workflow task and each activity, and pydantic's own starts each time without a
single schema; here all of them share one set.
"""

from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import CompositePayloadConverter, DataConverter

_SHARED = PydanticPayloadConverter()


class SharedPydanticConverter(CompositePayloadConverter):
    """Reads and writes what `PydanticPayloadConverter` does, byte for byte."""

    def __init__(self) -> None:
        super().__init__(*_SHARED.converters.values())


data_converter = DataConverter(payload_converter_class=SharedPydanticConverter)
"""For every client and worker of Thread Objects."""
