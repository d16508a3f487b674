"""launch/first_hour.sh on a slice that is this machine (local_gcloud.py): once as it should be, and once per fault."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch import local_gcloud
from tests.support.pretraining_runs import RUN_CONFIG, make_corpus
from tests.support.project import LAUNCH, ROOT

CONFIG = RUN_CONFIG | {"data.lengths": 128, "data.batch_size": 16, "model.num_attention_heads": 1}
OF_THE_HOUR = ("steps", "optimizer.warmup_steps", "log.every", "log.evaluate_every", "checkpoints.every")
# What cannot be right here, because no host has a TPU.
WITHOUT_TPUS = {"devices", "a step of 128 tokens", "links, of a step", "memory of a chip"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


class FirstHour:
    """A cloud of two hosts, and what the script leaves."""

    def __init__(self, folder: Path, corpus: Path, *faults: list):
        self.folder, self.corpus = folder, corpus
        (folder / "bin").mkdir()
        (folder / "bucket").mkdir()
        gcloud = folder / "bin/gcloud"
        gcloud.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {local_gcloud.__file__} "$@"\n')
        gcloud.chmod(0o755)
        (folder / "hosts").write_text("2")
        (folder / "faults.json").write_text(json.dumps(faults))
        settings = {
            "project": "p",
            "name": "pod",
            "type": "v4-16",
            "runs": "gs://b",
            "poll": "1",
            "queue": "no",
        }
        settings |= {"capacity": "on-demand", "folder": str(folder / "here"), "restarts": "1"}
        text = "\n".join(f"{key}={shlex.quote(value)}" for key, value in settings.items())
        (folder / "settings.sh").write_text((LAUNCH / "settings.sh").read_text() + text)

    def run(self) -> tuple[int, str]:
        keys = {name: value for name, value in CONFIG.items() if name not in OF_THE_HOUR}
        flags = [f"--config.{name}={value}" for name, value in (keys | {"data.corpora": self.corpus}).items()]
        command = [LAUNCH / "first_hour.sh", "--settings", self.folder / "settings.sh", "train",
                   "--config", "configs/pretrain.py:tiny", *flags]  # fmt: skip
        environment = os.environ | {
            "PATH": f"{self.folder}/bin:/usr/bin:/bin", "LOCAL_CLOUD": str(self.folder), "HOME": str(self.folder),
            "PYTHON": sys.executable, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        }  # fmt: skip
        ran = subprocess.run(
            command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return ran.returncode, ran.stdout

    def verdicts(self) -> dict[str, str]:
        """The verdict of each line of the page."""
        page = (self.folder / "here/first-hour/page.md").read_text()
        rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
        return {name: row[-1] for name, *row in rows if len(row) == 3}


@pytest.mark.long
def test_an_hour_on_hosts_that_are_as_they_should_be(tmp_path, corpus):
    hour = FirstHour(tmp_path, corpus)
    code, output = hour.run()
    print(output)
    verdicts = hour.verdicts()
    assert {name for name, verdict in verdicts.items() if verdict != "pass"} == WITHOUT_TPUS, output
    assert code == 1
    (kept,) = (tmp_path / "bucket").glob("first-hour-*/page.md")
    assert kept.read_text() == (tmp_path / "here/first-hour/page.md").read_text()
    assert not list(tmp_path.glob("host-*")), "the slice is deleted"


KERNELS, LOOP = "bert_jax/models/kernels/short_attention.py", "bert_jax/training/loop.py"
# Line of the page -> (host, file, text, other text).
FAULTS = {
    "versions": (1, "launch/constraints.txt", "\noptax==", "\noptax==0."),
    "kernel: short, dropout": (0, KERNELS, "d_scores = weights * (d_w", "d_scores = 2 * weights * (d_w"),
    "kernel: short, a bias for each distance": (
        1, KERNELS, "(1 - rate) * 2**16", "(1 - 2 * rate) * 2**16"
    ),
    "input of 128 tokens": (
        1, "bert_jax/pod/preflight_checks.py", "        rows += len(", "        time.sleep(2)\n        rows += len("
    ),
    "checkpoint, there and back": (
        0, "bert_jax/training/checkpoint.py", "return state, self.read_position(step)",
        "return state.replace(step=state.step + 1), self.read_position(step)",
    ),
}  # fmt: skip
DEATH = (
    1,
    LOOP,
    "                self.step += 1\n",
    "                self.step += 1\n                self.step < 50 or 1 / 0\n",
)


@pytest.mark.long
def test_each_fault_is_found_and_named(tmp_path, corpus):
    hour = FirstHour(tmp_path, corpus, *FAULTS.values())
    code, output = hour.run()
    print(output)
    failed = {name for name, verdict in hour.verdicts().items() if verdict == "FAIL"}
    # What is read back wrong is also what a run resumes from.
    assert code == 1 and {*FAULTS, "a killed process and a preemption"} <= failed, output


@pytest.mark.long
def test_a_process_that_dies(tmp_path, corpus):
    hour = FirstHour(tmp_path, corpus, DEATH)
    code, output = hour.run()
    print(output)
    verdicts = hour.verdicts()
    assert code == 1 and verdicts["the scripts"] == verdicts["a killed process and a preemption"] == "FAIL", (
        output
    )
    assert "host 1 failed" in output and "division by zero" in output
    assert not list(tmp_path.glob("host-*")), "the slice is deleted"


@pytest.mark.long
def test_a_bucket_without_rights(tmp_path, corpus):
    hour = FirstHour(tmp_path, corpus)
    (tmp_path / "bucket").rmdir()
    (tmp_path / "bucket").symlink_to("/sys/kernel")  # where not even root may write
    code, output = hour.run()
    print(output)
    verdicts = hour.verdicts()
    assert code == 1 and verdicts["storage"] == "FAIL", output
    assert verdicts["checkpoint, there and back"] == "not measured", "no host waits for one that cannot write"
    assert "the page is not on the slice's storage" in output
