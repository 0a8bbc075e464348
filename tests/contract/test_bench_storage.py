"""The storage benchmark works, on a small past."""

import json

import pytest

from benchmarks import storage as bench


def test_bench_storage_compares_every_operation(capsys: pytest.CaptureFixture[str], monkeypatch, tmp_path):
    """Plans, times, and last one line with a ratio for each operation and each way to grow."""
    monkeypatch.setattr(bench, "BUILD", tmp_path / "bench")
    monkeypatch.setattr(bench, "WARM_UP", 2)
    small = ["--records", "50", "500", "--threads", "100", "400", "--cycles", "4", "--rounds", "1"]
    assert bench.main(["--only", "sqlite", *small]) == 0
    printed = capsys.readouterr().out.splitlines()
    ratios = json.loads(printed[-1])
    operations = ("admit", "claim", "append", "worklist", "observe", "obligations", "settle")
    assert set(ratios) == {f"sqlite.{name}.{way}" for name in operations for way in ("records", "threads")}
    assert all(ratio > 0 for ratio in ratios.values())
    assert any("SEARCH records USING INDEX" in line for line in printed)
    assert not (tmp_path / "bench").exists()
