"""What experiment trackers keep of a run: `python -m tests.peers.trackers TRACKER DIR`, where TRACKER is installed.

DIR gets a run that has finished. The tracker follows it as the guide shows, without an account and a network; then it
is asked for what it has kept.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import bert_jax
from tests.support.project import ROOT

BLOCK = re.compile(r"^```python\n(# pip install (wandb|mlflow|trackio)\n.*?)^```$", re.M | re.S)
LINES = [
    {"step": 10, "kind": "train", "loss": 2.5, "accuracy": None, "time": {"tokens_per_second": 900.0}},
    {"step": 20, "kind": "train", "loss": 2.25, "accuracy": 0.5, "time": {"tokens_per_second": 950.0}},
    {"step": 20, "kind": "validation", "loss": 2.375, "time": {"seconds": 0.5}},
]


def read_followers() -> dict[str, str]:
    """The programs of the guide, each by the name of its tracker."""
    guide = (ROOT / "configs/guides/pretrain.md").read_text(encoding="utf-8")
    return {tracker: code for code, tracker in BLOCK.findall(guide)}


def write_run(directory: Path) -> None:
    (directory / "folds").mkdir(parents=True)
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    (directory / "finished.json").touch()


def read_wandb() -> Iterator[tuple[str, int, float]]:
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = Path("wandb").glob("offline-run-*/run-*.wandb")
    content, place = path.read_bytes(), 7  # after the head
    while place < len(content):
        size = int.from_bytes(content[place + 4 : place + 6], "little")
        record = Record.FromString(content[place + 7 : place + 7 + size])
        place += 7 + size
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            if not name.startswith("_"):
                yield name, record.history.step.num, json.loads(item.value_json)


def read_mlflow() -> Iterator[tuple[str, int, float]]:
    import mlflow

    client = mlflow.MlflowClient()
    (run,) = client.search_runs(["0"])
    for name in run.data.metrics:
        for point in client.get_metric_history(run.info.run_id, name):
            yield name, point.step, point.value


def read_trackio() -> Iterator[tuple[str, int, float]]:
    from trackio.sqlite_storage import SQLiteStorage

    for row in SQLiteStorage.get_logs("bert", "base"):
        for name, value in row.items():
            if name not in ("step", "timestamp", "log_id"):
                yield name, row["step"], value


READERS = {"wandb": read_wandb, "mlflow": read_mlflow, "trackio": read_trackio}


def main(tracker: str, directory: str) -> None:
    os.environ |= {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_TRACKING_URI": f"sqlite:///{directory}/mlflow.db",
        "TRACKIO_DIR": f"{directory}/trackio",
    }  # fmt: skip
    os.chdir(directory)
    write_run(Path("runs/base"))
    exec(read_followers()[tracker], {})
    expected = {
        (name, step, value) for step, values in bert_jax.follow("runs/base") for name, value in values.items()
    }
    assert {*READERS[tracker]()} == expected and len(expected) == 7


if __name__ == "__main__":
    main(*sys.argv[1:])
