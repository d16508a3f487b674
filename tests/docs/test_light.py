"""All that needs no TensorFlow, in a process that finds only what `pip install .` installs."""

import json
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.hostile import material
from tests.support.made_up_language import save_tokenizer
from tests.support.pretraining_runs import train_command
from tests.support.processes import process_environment
from tests.support.project import ROOT
from tests.support.requirements import modules_of_others

GENTLE = ("steps=2", "data.batch_size=8", "data.max_length=24", "log.every=1")


def absent() -> list[str]:
    """The modules that `pip install .` does not install; from pyproject.toml, for what is installed may be older."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    missing = modules_of_others(map(Requirement, project["dependencies"]))
    assert {"tensorflow", "tensorflow_datasets", "keras", "zstandard"} <= {*missing} and "jax" not in missing
    return missing


@pytest.mark.ci
def test_what_pip_install_installs_is_enough(tmp_path):
    vocabulary, masked = tmp_path / "vocabulary", tmp_path / "masked"
    save_tokenizer(vocabulary)
    material.model(masked, vocabulary, ("mlm", "nsp"))
    texts = material.sentences(60)
    rows = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(texts)]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "text.txt").write_text("\n\n".join(texts))

    train = ["train", "--config", ROOT / "configs/classify.py", "--workdir", tmp_path / "classify"]
    settings = (*GENTLE, f"init={masked}", f"data.train={tmp_path}/labelled.jsonl", "data.folds=0")
    classifier = ["--model", tmp_path / "classify/model"]
    works = [
        [*train, *(f"--config.{setting}" for setting in settings)],
        ["predict", *classifier, "--input", tmp_path / "labelled.jsonl"],
        ["index", tmp_path / "text.txt", "--model", masked, "--output", tmp_path / "index"],
        ["search", tmp_path / "index", texts[0]],
        ["prepare", "--input", tmp_path / "text.txt", "--tokenizer", vocabulary, "--output", tmp_path / "corpus",
         "--processes", 1],
        [*train_command(tmp_path / "corpus", tmp_path / "run")[3:]],
    ]  # fmt: skip
    refused = {
        "train": ["evaluate", "--model", masked, "--data", "tfds:glue/sst2:test"],
        "ray": ["embed", "--model", masked, "--input", tmp_path / "text.txt", "--output", tmp_path / "v", "--ray"],
    }  # fmt: skip
    commands = [[str(word) for word in command] for command in (*works, *refused.values())]
    script = ROOT / "tests/docs/light.py"
    ran = subprocess.run(
        [sys.executable, script, json.dumps(absent()), json.dumps(commands)],
        env=process_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    ends = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(ends) == len(commands)
    for command, (code, output) in zip(commands[: len(works)], ends, strict=False):
        assert code == 0, (command[:5], output[-3000:])
    for extra, (code, output) in zip(refused, ends[len(works) :], strict=True):
        assert code == 1 and output.endswith(f"pip install '.[{extra}]'\n"), output
        assert output.count("\n") == 1, output
    assert (tmp_path / "classify/report/report.md").is_file() and (tmp_path / "classify/curves.png").is_file()
