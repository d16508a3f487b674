"""`bert-jax bench all`: what is measured, what is left out, how a killed run goes on, and the table."""

import json
import re
import subprocess
from types import SimpleNamespace

import pytest

from bert_jax.bench import table
from bert_jax.bench.measurements import INPUTS, MEASUREMENTS
from bert_jax.bench.table import Places, measure_all
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from tests.support.small_models import write_model

RATIO = {"median": 2.0, "low": 1.5, "high": 2.5, "rounds": 6}
OF_TEXTS = {
    "texts_per_second": 1000.0,
    "p50_ms": 4.0,
    "p99_ms": 9.0,
    "throughput": RATIO,
    "p50": RATIO,
    "p99": RATIO,
}
RESULTS = {
    "embed": {"texts": 8, "tokens": 14.2, "dtype": "float32", "of": {"bert-jax": OF_TEXTS, "onnxruntime": OF_TEXTS}},
    "train": {"step": {"size": "base", "batch": 8, "length": 128, "dtype": "float32"}, "share_of_matmul": 0.6,
              "against": {"float32": {"ours_seconds": 1.9, "seconds": 3.6, "speedup": RATIO}}},
    "finetune": {
        "best": "f1",
        "runs": {name: [{}] * 3 for name in ("bert_jax float32", "bert_jax bfloat16", "transformers")},
        "means": {"bert_jax float32": {"seconds": 50.0, "f1": 0.81}, "bert_jax bfloat16": {"seconds": 30.0, "f1": 0.8},
                  "transformers": {"seconds": 100.0, "f1": 0.82}},
        "against": {name: {"transformers": {"speedup": RATIO, "score": 0.82, "difference": -0.01,
                                            "standard_error": 0.02}}
                    for name in ("bert_jax float32", "bert_jax bfloat16")},
    },
    "input": {"lengths": [128], "rows_per_second": {"next sentence": [95_000.0]}},
}  # fmt: skip


@pytest.fixture
def commands(monkeypatch):
    """The verbs that were run, each of which gives the result above."""
    verbs = []

    def run(words, **settings):
        verb = words[words.index("bench") + 1]
        verbs.append(verb)
        if "broken" in " ".join(words):
            return SimpleNamespace(returncode=1, stdout="")
        result = RESULTS[verb] | {"machine": {"cores": 2, "busy": verb == "train"}}
        return SimpleNamespace(returncode=0, stdout=f"progress\n{json.dumps(result)}\n")

    monkeypatch.setattr(subprocess, "run", run)
    return verbs


ONLY = ("embed-short-float32", "embed-long-float32", "step-float32", "input")


def places(tmp_path, corpus="corpus"):
    data = tmp_path / "data"
    (data / "stsbenchmark").mkdir(parents=True, exist_ok=True)
    (data / "stsbenchmark" / "sts-test.csv").write_text(
        'a\tb\tc\td\t5.0\tA cat.\tA "mat.\na\tb\tc\td\t0\tA cat.\tHm.\n'
    )
    for name in ("model", corpus):
        (tmp_path / name).mkdir(exist_ok=True)
    given = {"model": tmp_path / "model", "data": data, "corpus": tmp_path / corpus, "classifier": None}
    return Places({name: path and str(path) for name, path in given.items()}, tmp_path / "output")


def test_the_table_and_what_is_left_out(tmp_path, commands, capsys):
    text = measure_all(places(tmp_path), ONLY, quick=True)
    assert commands == ["embed", "train", "input"]
    assert "embed-long-float32: left out: " in capsys.readouterr().out
    assert "wikitext-2" not in text and text == (tmp_path / "output" / "table.md").read_text()
    assert "| 4.0 ms | onnxruntime 4.0 ms | 2.00 (1.50 to 2.50) |" in text
    assert (
        "| 1.900 s, 60% of the speed of a plain matrix product | torch float32 3.600 s | 2.00 (1.50 to 2.50) "
        "(busy machine) |" in text
    )
    assert "| corpus to batches with pairs and masks, rows of 128 tokens | 95,000 rows/s |  |  |" in text
    assert "jax 0." in text and "bert-jax bench train --size base" in text
    assert (tmp_path / "output" / "table.png").stat().st_size > 5_000
    assert (tmp_path / "output" / "inputs" / "sts.txt").read_text() == 'A cat.\nA "mat.\nHm.\n'


def test_a_fine_tuning_is_shown_in_both_types(tmp_path, commands):
    data = tmp_path / "data" / "conll2003"
    data.mkdir(parents=True)
    for name in ("eng.train", "eng.testa"):
        (data / name).touch()
    text = measure_all(places(tmp_path), ["conll-2003"], quick=True)
    for dtype, seconds, score in (("float32", "50.0", "0.8100"), ("bfloat16", "30.0", "0.8000")):
        rows = (
            f"| fine-tune on CoNLL-2003, bert_jax in {dtype}, 3 seeds: time, including compilation | {seconds} s | "
            "transformers 100.0 s | 2.00 (1.50 to 2.50) |\n"
            f"| fine-tune on CoNLL-2003, bert_jax in {dtype}, 3 seeds: f1 | {score} | transformers 0.8200 "
            "(difference -0.0100 ± 0.0200) |"
        )
        assert rows in text, text


def test_a_killed_run_goes_on(tmp_path, commands):
    measure_all(places(tmp_path), ["step-float32"], quick=True)
    results = tmp_path / "output" / "results.jsonl"
    results.write_text(results.read_text() + '{"name": "input", "comm')  # killed while it wrote
    text = measure_all(places(tmp_path), ["step-float32", "input"], quick=True)
    assert commands == ["train", "input"]
    assert "1.900 s" in text and "95,000 rows/s" in text
    # Another set of versions is another measurement, and quick ones are not those of the table.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "machine", lambda: {"processor": "another", "python": "3.13", "versions": {}})
        measure_all(places(tmp_path), ["input"], quick=True)
    assert commands == ["train", "input", "input"]
    measure_all(places(tmp_path), ["input"], quick=False)
    assert len(commands) == 4


def test_a_failure_is_told_and_tried_again(tmp_path, commands):
    with pytest.raises(BertJaxError, match="failed: input .*same command"):
        measure_all(places(tmp_path, "broken"), ["step-float32", "input"], quick=True)
    assert "1.900 s" in (tmp_path / "output" / "table.md").read_text()
    with pytest.raises(BertJaxError, match="failed: input "):
        measure_all(places(tmp_path, "broken"), ["input"], quick=False)  # none of its kind was measured
    with pytest.raises(BertJaxError, match="no measurement steps; there are embed-short"):
        measure_all(places(tmp_path), ["steps"], quick=True)


def test_every_command_is_one_of_bench(tmp_path):
    """With all places there, each measurement's words are those of a verb, its files are made or named."""
    from bert_jax.command import bench
    from bert_jax.command.flags import Parser, verbs_of

    assert len({measurement.name for measurement in MEASUREMENTS}) == len(MEASUREMENTS)
    for measurement in MEASUREMENTS:
        verb, *words = f"{measurement.command} {measurement.quick} --json".split()
        parser = Parser(prog=verb)
        verbs_of(bench)[verb].declare(parser)
        parser.parse_args(words + (["--against", *measurement.against] if measurement.against else []))
        assert all(word.partition("{inputs}/")[2] in ("", *INPUTS) for word in words)


@pytest.mark.long
def test_it_measures(tmp_path, capsys):
    write_model(tmp_path / "model")
    given = places(tmp_path).given
    flags = ["--model", given["model"], "--data", given["data"], "--output", str(tmp_path / "output")]
    # No step beside torch: compiled by torch it takes minutes.
    names = ["embed-short-float32", "embed-short-bfloat16"]
    assert main(["bench", "all", *flags, "--quick", "--only", *names]) == 0
    text = capsys.readouterr().out
    for dtype in ("float32", "bfloat16"):
        assert re.search(
            f"embed STS-B's sentences: 3 texts of .* ours in {dtype}, in batches [|] .* texts/s", text
        )
