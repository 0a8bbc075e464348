"""The one base of everything that crosses a process or a disk.

Python names are snake_case, JSON names are the contract's camelCase. Unknown fields are ignored, so that an
older reader survives a newer writer; new fields therefore always carry a default.
"""

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

Json = JsonValue
"""Any JSON value. Named here so that `core` needs no pydantic of its own."""


class Wire(BaseModel):
    """A frozen message: equal by value, camelCase in JSON, unknown fields ignored."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        # Told as it is, for storage to refuse: a value must not become another one on its way.
        ser_json_inf_nan="constants",
    )
