"""From measurements to the last line: ratios of medians, and the bars they have to clear."""

import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OURS = "ours"
PEER = "temporal"

Measured = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bar:
    """One number of the last line.

    `workload` and `field` say where ours comes from. With `against`, the number is the ratio of the medians, ours
    over the peer's, and `against` is the workload (same field unless `against_field`) of the peer.
    """

    name: str
    workload: str
    field: str
    holds: Callable[[float, float], bool]
    limit: float
    against: str | None = None
    against_field: str | None = None
    fold: Callable[[Sequence[float]], float] = statistics.median

    def value(self, measured: Sequence[Measured]) -> float | None:
        """None when what it needs was not measured."""
        ours = self._of(measured, OURS, self.workload, self.field)
        if ours is None or self.against is None:
            return ours
        peer = self._of(measured, PEER, self.against, self.against_field or self.field)
        return None if not peer else ours / peer

    def _of(self, measured: Sequence[Measured], side: str, workload: str, field: str) -> float | None:
        values = [record.get(field) for record in measured if record["side"] == side and record["w"] == workload]
        if not values or any(value is None for value in values):
            return None  # one repetition that never got there is no repetition to leave out
        return float(self.fold([float(value) for value in values if value is not None]))

    def cleared(self, value: float) -> bool:
        """Whether this value is good enough."""
        return self.holds(value, self.limit)

    def __str__(self) -> str:
        sign = ">=" if self.holds is operator.ge else "<="
        return f"{self.name} {sign} {self.limit:g}"


BARS = (
    Bar("w1_p50", "w1", "p50", operator.le, 1.05, against="w1"),
    Bar("w1_paced_p50", "w1_paced", "p50", operator.le, 0.8, against="w1_paced"),
    Bar("receipt_paced_p50", "w1_paced", "receipt_p50", operator.le, 1.5, against="w1_paced"),
    Bar("receipt_signal_p50", "w1_signal", "receipt_p50", operator.le, 0.8, against="w1_paced"),
    Bar("w2_total", "w2", "median_ms", operator.le, 0.08, against="w2"),
    Bar("w2_events", "w2", "events", operator.le, 20),
    Bar("w3_rate", "w3", "per_s", operator.ge, 1.1, against="w3"),
    Bar("w4_resume_rows", "w4", "resume_rows", operator.le, 1_100),
    Bar("w5_unknown_visible_s", "w5", "unknown_visible_s", operator.le, 8),
    Bar("w5_resume_s", "w5", "resume_s", operator.le, 10),
    Bar("w5_twice", "w5", "twice", operator.le, 0, fold=sum),
)
"""In the order of the last line."""


def wanted(workloads: Sequence[str], *, peer: bool) -> tuple[Bar, ...]:
    """The bars that measuring these workloads answers."""
    return tuple(
        bar
        for bar in BARS
        if bar.workload in workloads and (bar.against is None or (peer and bar.against in workloads))
    )


def summary(measured: Sequence[Measured], bars: Sequence[Bar]) -> dict[str, float]:
    """The last line: what was measured, rounded, and nothing else."""
    values = {bar.name: bar.value(measured) for bar in bars}
    return {name: _short(value) for name, value in values.items() if value is not None}


def _short(value: float) -> float:
    return int(value) if value == int(value) else round(value, 3)


def verdicts(found: Mapping[str, float], bars: Sequence[Bar]) -> list[tuple[Bar, float | None, bool]]:
    """Each bar with its value and whether it is cleared; one that was not measured is not."""
    return [(bar, found.get(bar.name), bar.name in found and bar.cleared(found[bar.name])) for bar in bars]
