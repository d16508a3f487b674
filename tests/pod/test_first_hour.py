"""The page of a first hour, from made-up predictions and measurements."""

import copy

import pytest

from bert_jax.pod import first_hour
from bert_jax.pod.first_hour import FAIL, PASS, UNKNOWN

SECONDS = {
    "compute": 0.020,
    "memory": 0.015,
    "links": 0.008,
    "serial": 0.043,
    "scheduled": 0.035,
    "least": 0.020,
}
PREDICTED = {
    "topology": "v5e:4x4", "chips": 16, "hosts": 4, "rows": 256, "kind": "TPU v5 lite", "chip_memory": 16e9,
    "price": 1.2,
    "phases": [
        {
            "length": length, "share": share, "mesh": {"data": 16, "fsdp": 1, "tensor": 1}, "state": 1.3e9,
            "memory": {"parameters": 0.4e9, "optimizer": 0.8e9, "temporaries": temporaries}, "seconds": SECONDS,
        }
        for length, share, temporaries in ((128, 0.9, 1e9), (512, 0.1, 3e9))
    ],
}  # fmt: skip
KERNEL = {"values": 0.003, "gradients": 0.004, "kept": 0.9005, "fault": None}
HOSTS = [
    {
        "host": number,
        "versions": {"compared": 100, "differing": {}, "python": "3.13.0"},
        "devices": {"kind": "TPU v5 lite", "here": 4, "count": 16, "processes": 4, "memory": 16e9},
        "kernels": {"short": dict(KERNEL), "splash": KERNEL | {"kept": None}},
        "input": {"128": 9000.0, "512": 3000.0},
        "storage": {"seconds": 0.4},
        "checkpoint": {"bytes": 1.31e9, "seconds": {"save": 9.0, "restore": 7.0}, "equal": True},
    }
    for number in range(4)
]
LINES = [
    {"step": step, "loss": 9 - step / 100,
     "time": {"seconds": 0.2, "seconds_per_step": 2.0 if step == 95 else 0.037, "peak_memory": 4.0e9}}
    for step in range(5, 101, 5)
]  # fmt: skip
RUN = {"lines": LINES, "model": "abc"}
RUNS = {
    "whole": RUN | {"profile": {"directory": "runs/x/whole/profile", "bytes": 9e6, "collectives": 0.007}},
    "interrupted": copy.deepcopy(RUN),
}
RESUMED = ["resuming at step 30", "resuming at step 63"]


def verdicts(hosts=HOSTS, runs=RUNS, resumed=RESUMED, failures=()) -> dict[str, str]:
    found = first_hour.find_all(PREDICTED, hosts, runs, resumed, failures)
    return {finding.name: finding.verdict for finding in found}


def test_what_was_predicted_passes():
    assert set(verdicts().values()) == {PASS}
    assert len(verdicts()) == 14


def changed(value, path: str, new):
    """A copy of nested dicts and lists with another value at a path."""
    copied = copy.deepcopy(value)
    inner, parts = copied, path.split("/")
    for part in parts[:-1]:
        inner = inner[int(part) if isinstance(inner, list) else part]
    inner[parts[-1]] = new
    return copied


@pytest.mark.parametrize(
    ("path", "new", "name"),
    [
        ("2/versions/differing", {"jax": "0.11 instead of 0.12"}, "versions"),
        ("3/devices/count", 12, "devices"),
        ("2/kernels/short/fault", "its gradients differ from the definition's by 40%", "kernel: short"),
        ("1/kernels", {"error": "Mosaic failed"}, "kernels"),
        ("1/input/512", 900.0, "input of 512 tokens"),
        ("1/input", {"error": "no corpus"}, "input of 128 tokens"),
        ("3/storage", {"error": "Permission denied"}, "storage"),
        ("0/checkpoint/equal", False, "checkpoint, there and back"),
    ],
)
def test_what_one_host_finds_wrong_fails_its_line_alone(path, new, name):
    found = verdicts(changed(HOSTS, path, new))
    assert {line for line, verdict in found.items() if verdict == FAIL} >= {name}
    assert sum(verdict == FAIL for verdict in found.values()) <= (2 if name == "input of 128 tokens" else 1)


@pytest.mark.parametrize(
    ("path", "new", "name"),
    [
        ("whole/lines", [line | {"time": {"seconds_per_step": 0.06}} for line in LINES], "a step of 128 tokens"),
        ("whole/lines", [line | {"time": {"seconds_per_step": 0.01}} for line in LINES], "a step of 512 tokens"),
        ("whole/profile/collectives", 0.02, "links, of a step"),
        ("whole/lines/3/time/peak_memory", 6e9, "memory of a chip"),
        ("interrupted/model", "abd", "a killed process and a preemption"),
        ("interrupted/lines/7/loss", 0.0, "a killed process and a preemption"),
        ("whole/profile/bytes", 0, "profile"),
    ],
)  # fmt: skip
def test_what_a_run_shows_wrong_fails_its_line(path, new, name):
    assert verdicts(runs=changed(RUNS, path, new))[name] == FAIL


def test_what_was_not_measured_does_not_pass():
    found = verdicts([], {}, [], ["the run did not end"])
    assert PASS not in found.values() and UNKNOWN in found.values()
    assert verdicts(resumed=RESUMED[:1])["a killed process and a preemption"] == FAIL, (
        "it was interrupted once"
    )
    without = [line | {"time": {"seconds_per_step": 0.037}} for line in LINES]
    assert verdicts(runs=changed(RUNS, "whole/lines", without))["memory of a chip"] == UNKNOWN
