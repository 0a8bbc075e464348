"""The wire: names, limits, identities, frozen messages, records and reports. Imports pydantic only."""
