"""The day with a GPU, tried without one: cases of tiny sizes on a CPU."""

import json
import time

import pytest

from tests.bench import gpu_time
from tests.bench.gpu_time import (
    EmbeddingCase,
    PretrainingCase,
    TuningCase,
    measure,
    measure_apart,
    time_cases,
)
from tests.bench.turns import OURS

BASE, PACKED, TEXTS = PretrainingCase("base", 64, 512), TuningCase("packed"), EmbeddingCase()
PEAK = 1e12


@pytest.fixture(autouse=True)
def _no_torch(monkeypatch):
    monkeypatch.setattr(gpu_time, "sides", lambda: [OURS])


@pytest.mark.long
def test_each_case_is_timed_and_one_that_fails_stops_no_other(tmp_path, monkeypatch):
    """By hand, as the comparison itself: CI shows the table and its share of the peak below, with figures given."""
    unknown = PretrainingCase("bass", 64, 512)
    monkeypatch.setattr(gpu_time, "PEAKS", {"cpu": PEAK})

    def run(name, side, folder, seconds):
        return (
            measure_apart(name, side, folder, seconds)
            if name == unknown.name
            else measure(name, side, folder)
        )

    table = time_cases(str(tmp_path), 10, [[BASE, unknown], [PACKED, TEXTS]], run).splitlines()[2:]
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert list(results) == [BASE.name, unknown.name, PACKED.name, TEXTS.name]
    assert results.pop(unknown.name) == {OURS: {"error": f"exit code 1: KeyError: '{unknown.name}'"}}
    assert "| not measured |" in table.pop(1)
    for name, line in zip(results, table, strict=True):
        result = results[name][OURS]
        share = 1e12 * result["teraflop"] / result["seconds"] / PEAK
        assert result["tiny"] and result["attention"] == "xla" and 0 < share < 1
        assert line.startswith(f"| {name} (tiny) | ") and f"| {share:.1%} | xla |" in line
    assert (tmp_path / "gpu.png").read_bytes().startswith(b"\x89PNG")


def test_a_row_has_its_share_of_the_peak_and_what_finds_no_time_left_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_time, "PEAKS", {"cpu": 8 * PEAK})

    def run(name, side, folder, seconds):
        time.sleep(seconds)
        return {"seconds": 1.0, "device": "cpu", "teraflop": 1.0}

    first, second = time_cases(str(tmp_path), 0.001, [[BASE, PACKED]], run).splitlines()[2:]
    assert "| 1,000 |" in first and "| 12.5% |" in first and "| not measured |" in second
    assert "--minutes" in json.loads((tmp_path / "gpu.json").read_text())[PACKED.name][OURS]["error"]


@pytest.mark.long
def test_packed_texts_have_the_flops_of_padded_ones(tmp_path):
    """Padding is no work, and a pack's texts do not see each other."""
    place = gpu_time.Place(tmp_path, is_tiny=True)
    packed, padded = (TuningCase(batching).ours(place)[1] for batching in ("packed", "padded"))
    assert packed == padded
