"""`bert-jax bench`: the figures are those of what was measured."""

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax import tasks
from bert_jax.bench.step_speed import Step, synthetic_batch
from bert_jax.bench.timing import FEWEST, Machine, MeasuredTurns, Turn, describe_load, text_figures, timed
from bert_jax.command.main import main
from tests.support.pretraining_runs import make_corpus
from tests.support.project import ROOT
from tests.support.small_models import write_model

LINES = [f"the cat sat on mat {n}" for n in range(8)]


def figures_of(words: list[str], capsys) -> dict[str, dict[str, float]]:
    assert main(["bench", *words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(result["machine"]) == {"cores", "load", "others", "busy"}
    return result["figures"]


def traced_programs(directory: Path) -> set[str]:
    """The programs whose operations are in a trace that Perfetto opens, beside which is one that xprof opens."""
    (trace,) = directory.rglob("*.trace.json.gz")
    assert list(trace.parent.glob("*.xplane.pb"))
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return {event["args"]["hlo_module"] for event in events if "hlo_op" in event.get("args", {})}


def test_a_busy_machine_is_marked():
    quiet = Machine(cores=2, load=0.3)
    assert not quiet.load_during([Turn(1.0, 0.9, 0.1), Turn(3.0, 3.0, 0.1)])["busy"]
    assert quiet.load_during([Turn(1.0, 0.9, 0.1), Turn(3.0, 3.0, 1.9)])["others"] == pytest.approx(0.5)
    assert quiet.load_during([Turn(1.0, 0.9, 0.1), Turn(3.0, 3.0, 1.9)])["busy"]
    after_another = Machine(cores=2, load=2.4)
    loaded = after_another.load_during([Turn(1.0, 0.9)])
    assert loaded["busy"] and "BUSY: measure again" in describe_load(loaded)
    assert not after_another.load_during([Turn(1.0, 0.9, 0.0)])["busy"]
    unknown = quiet.load_during([Turn(1.0, 0.9)])
    assert unknown["others"] is None and not unknown["busy"]
    assert "other programs used an unknown number of 2 cores" in describe_load(unknown)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="the system does not tell what others use")
def test_the_processor_time_of_others_is_seen():
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        _, turn = timed(time.sleep, 1.0)
    finally:
        spinner.kill()
        spinner.wait()
    assert turn.cpu < 0.2 < turn.others and turn.seconds == pytest.approx(1.0, abs=0.3)


def test_one_table_has_a_column_for_each_variant():
    figures = {
        "float32": {"texts_per_second": 1351.4, "p50_ms": None},
        "bfloat16": {"texts_per_second": 2.0, "p50_ms": 4.87},
    }
    load = {"cores": 2, "load": 0.0, "others": 0.0, "busy": False}
    title, header, *rows, _ = MeasuredTurns("embed", figures, load).shown(as_json=False).splitlines()
    assert title == "embed" and header.split() == ["float32", "bfloat16"]
    assert [row.split() for row in rows] == [
        ["texts", "per", "second", "1,351", "2"],
        ["p50", "ms", "-", "4.87"],
    ]


def test_latency_is_of_every_text_that_was_given():
    """p99 is that of the two slow texts among a hundred, wherever they stand."""
    texts, calls = [f"text {n}" for n in range(100)], []
    seconds = dict.fromkeys(texts, 0.0001) | dict.fromkeys(("text 50", "text 99"), 0.05)

    def run(some):
        calls.append(len(some))
        if len(some) == 1:
            time.sleep(seconds[some[0]])

    figures, turns = text_figures(run, texts, np.arange(100))
    assert figures["one_text_p50_ms"] < 50 <= figures["one_text_p99_ms"]
    assert figures["texts_per_second"] > 1000 and figures["tokens_per_second"] == pytest.approx(
        figures["texts_per_second"] * 49.5
    )
    assert calls.count(1) == 100 * (1 + FEWEST) and len(turns) == calls.count(100) - 1 + FEWEST


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["embed", "predict"])
def test_texts_are_timed_in_each_dtype(verb, tmp_path, capsys):
    write_model(tmp_path / "model", heads=("classify",), labels=("no", "yes"))
    (tmp_path / "lines.txt").write_text("\n".join(LINES))
    words = [verb, "--model", str(tmp_path / "model"), "--input", str(tmp_path / "lines.txt"), "--texts", "4"]
    dtypes = ["float32", "bfloat16"]
    figures = figures_of([*words, "--dtype", *dtypes, "--profile", str(tmp_path / "traces")], capsys)
    assert list(figures) == dtypes
    assert all(value > 0 for values in figures.values() for value in values.values())
    assert all(traced_programs(tmp_path / "traces" / dtype) for dtype in dtypes)


@pytest.mark.slow
def test_a_model_that_is_no_classifier(tmp_path, capsys):
    write_model(tmp_path)
    (tmp_path / "lines.txt").write_text("a line")
    words = ["bench", "predict", "--model", str(tmp_path), "--input", str(tmp_path / "lines.txt")]
    assert main(words) == 1
    assert 'bench predict needs the head "classify"' in capsys.readouterr().err


STEP = [
    "--config", f"{ROOT}/configs/pretrain.py:tiny", "--config.model.num_hidden_layers=1", "--config.data.batch_size=2"
]  # fmt: skip


@pytest.mark.ci
def test_a_step_of_each_length_is_timed_and_traced(tmp_path, capsys):
    words = ["train", *STEP, "--config.data.lengths=16,32", "--profile", str(tmp_path / "traces")]
    figures = figures_of(words, capsys)
    assert list(figures) == ["2 x 16", "2 x 32"]
    for values, tokens in zip(figures.values(), (32, 64), strict=True):
        assert values["tokens_per_second"] == pytest.approx(tokens / values["seconds"])
        assert values["examples_per_second"] == pytest.approx(2 / values["seconds"])
        assert values["compile_seconds"] > 0 and values["cpu_seconds"] > 0
    assert all("jit_step" in traced_programs(tmp_path / "traces" / length) for length in ("16", "32"))


@pytest.mark.parametrize("examples", ["next_sentence", "none"])
def test_made_up_rows_are_full_and_count_whole(examples):
    settings = [
        "data.batch_size=3",
        "data.lengths=20",
        "data.length_ratios=1",
        f"data.sentence_objective={examples}",
        "data.max_documents_per_row=3",
    ]
    _, config = tasks.load_config(f"{ROOT}/configs/pretrain.py:tiny", settings)
    outline = tasks.outline_run(config)
    features = outline.phases[0].features
    batch = synthetic_batch(features, outline.task.layout.config.vocab_size)
    assert {name: (array.shape, array.dtype) for name, array in batch.items()} == features
    assert batch["attention_mask"].all() and (batch["target_weights"] == 1).all()
    assert all(len(set(row)) == len(row) and max(row) < 20 for row in batch["target_positions"].tolist())
    if examples == "none":
        first = [batch["segment_ids"][0].tolist().index(number) for number in (1, 2, 3)]
        assert batch["cls_positions"][0].tolist() == first and batch["segment_ids"].max() == 3
    else:
        assert (batch["label_weights"] == 1).all()


@pytest.mark.long
def test_a_step_of_made_up_rows_of_labels_learns(tmp_path):
    """A labelled run has the shapes of its own rows: of packed texts, with their tags."""
    write_model(tmp_path / "model", heads=("mlm",))
    (tmp_path / "train.conll").write_text(
        "".join("the O\ncat B-X\nsat O\n" * (1 + n % 5) + "\n" for n in range(40))
    )
    settings = [
        f"init={tmp_path / 'model'}",
        f"data.train={tmp_path / 'train.conll'}",
        "data.max_length=16",
        "data.overlap=4",
        "epochs=1",
    ]
    _, config = tasks.load_config(f"{ROOT}/configs/tag.py", settings)
    outline = tasks.outline_run(config)
    step = Step(outline, outline.phases[0])
    before = np.asarray(step.state.params["tag"]["dense"]["kernel"])
    for _ in range(2):
        step.take()
    assert int(step.state.discarded) == 0
    assert not np.array_equal(np.asarray(step.state.params["tag"]["dense"]["kernel"]), before)


@pytest.mark.slow
def test_an_input_stream_is_timed(tmp_path, capsys):
    corpus = make_corpus(tmp_path)
    words = ["input", *STEP, "--config.data.lengths=32", "--config.data.length_ratios=1"]
    figures = figures_of([*words, f"--config.data.corpora={corpus}"], capsys)
    (rows,) = figures.values()
    assert rows["tokens_per_second"] == pytest.approx(32 * rows["rows_per_second"])
    assert main(["bench", *words]) == 1
    assert "names no corpus to read" in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_is_timed_in_each_way(tmp_path, capsys):
    write_model(tmp_path / "model", heads=("mlm",))
    rows = [json.dumps({"id": str(n), "text": f"{line} and more"}) for n, line in enumerate(LINES)]
    (tmp_path / "docs.jsonl").write_text("\n".join(rows))
    index = str(tmp_path / "index")
    assert (
        main(["index", str(tmp_path / "docs.jsonl"), "--model", str(tmp_path / "model"), "--output", index])
        == 0
    )
    capsys.readouterr()
    figures = figures_of(["search", index], capsys)
    assert list(figures) == ["keywords", "vectors", "keywords + vectors"]
    assert all(value > 0 for values in figures.values() for value in values.values())
    (tmp_path / "queries.txt").write_text("cat\n\nmat\n")
    assert main(["bench", "search", index, "--queries", str(tmp_path / "queries.txt")]) == 0
    assert capsys.readouterr().out.startswith("2 queries, the 10 best of 8 passages")
