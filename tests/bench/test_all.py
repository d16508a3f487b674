"""`all`: what is measured, what is left out, how a killed run goes on, and the table."""

import subprocess
from types import SimpleNamespace

import pytest

from tests.bench import all as table
from tests.bench.all import Places, measure_all
from tests.bench.command import make_parser
from tests.bench.comparison import Comparison, Row
from tests.bench.measurements import INPUTS, MEASUREMENTS
from tests.bench.turns import Ratio

QUIET = {"cores": 2, "load": 0.1, "others": 0.0, "busy": False}
ROW = Row("step", {"float32": "1.9"}, "torch 3.6 s", {"float32": Ratio(2.0, 1.5, 2.5, 6)}, "s")


@pytest.fixture
def commands(monkeypatch):
    """The verbs that were run, each of which gives the row above."""
    verbs = []

    def run(words, **settings):
        verb = words[words.index("tests.bench") + 1]
        verbs.append(verb)
        if "broken" in " ".join(words):
            return SimpleNamespace(returncode=1, stdout="")
        result = Comparison([ROW], QUIET | {"busy": verb == "step"}).shown(as_json=True)
        return SimpleNamespace(returncode=0, stdout=f"progress\n{result}\n")

    monkeypatch.setattr(subprocess, "run", run)
    return verbs


ONLY = ("embed-short", "embed-long", "step")


def places(tmp_path, model="model"):
    data = tmp_path / "data"
    (data / "stsbenchmark").mkdir(parents=True, exist_ok=True)
    (data / "stsbenchmark" / "sts-test.csv").write_text(
        'a\tb\tc\td\t5.0\tA cat.\tA "mat.\na\tb\tc\td\t0\tA cat.\tHm.\n'
    )
    (tmp_path / model).mkdir(exist_ok=True)
    given = {"model": tmp_path / model, "data": data, "corpus": None, "classifier": None}
    return Places({name: path and str(path) for name, path in given.items()}, tmp_path / "output")


def test_the_table_and_what_is_left_out(tmp_path, commands, capsys):
    text = measure_all(places(tmp_path), ONLY)
    assert commands == ["embed", "step"]
    assert "embed-long: left out: " in capsys.readouterr().out
    assert "wikitext-2" not in text and text == (tmp_path / "output" / "table.md").read_text()
    assert "| STS-B's sentences: step | 1.9 s | torch 3.6 s | 2.00 (1.50 to 2.50) |  |" in text
    assert "| base: step | 1.9 s | torch 3.6 s | 2.00 (1.50 to 2.50) (busy machine) |  |" in text
    assert "jax 0." in text and "python -m tests.bench step --config configs/pretrain.py:base" in text
    assert (tmp_path / "output" / "inputs" / "sts.txt").read_text() == 'A cat.\nA "mat.\nHm.\n'


def test_a_killed_run_goes_on(tmp_path, commands):
    measure_all(places(tmp_path), ["step"])
    results = tmp_path / "output" / "results.jsonl"
    results.write_text(results.read_text() + '{"name": "embed", "comm')  # killed while it wrote
    measure_all(places(tmp_path), ["step", "embed-short"])
    assert commands == ["step", "embed"]
    # Another set of versions is another measurement.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "software", lambda: {"processor": "another", "python": "3.13", "versions": {}})
        measure_all(places(tmp_path), ["step"])
    assert commands == ["step", "embed", "step"]


def test_every_command_is_one_of_bench():
    """With all places there, each measurement's words are those of a verb, its files are made or named."""
    assert len({measurement.name for measurement in MEASUREMENTS}) == len(MEASUREMENTS)
    for measurement in MEASUREMENTS:
        words = f"{measurement.command} --json".split()
        make_parser().parse_args(words + (["--against", *measurement.against] if measurement.against else []))
        assert all(word.partition("{inputs}/")[2] in ("", *INPUTS) for word in words)
