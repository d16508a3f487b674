"""`bert-jax bench engines`: every engine's score is that of `evaluate`, and every engine has its row."""

import json

import pytest

import bert_jax
from bert_jax.bench.engine_process import measure_engine
from bert_jax.bench.engines import MeasuredEngine, format_table, plot_engines
from bert_jax.command.main import main
from tests.support.small_models import SMALL_TEXTS, write_model

FIGURES = {
    "load_seconds": 0.5, "texts_per_second": 100.0, "one_text_p50_ms": 2.5, "peak_bytes": 2 * 10**8, "metric": "f1",
    "score": {"value": 0.75, "low": 0.5, "high": 0.875},
    "machine": {"cores": 2, "load": 0.1, "others": 0.0, "busy": False},
}  # fmt: skip


@pytest.fixture
def classifier(tmp_path):
    """The directory of a model, and labelled data."""
    write_model(tmp_path / "model", heads=("classify",), labels=("bad", "good"))
    data = tmp_path / "data.csv"
    data.write_text(
        "text,label\n" + "".join(f"{text},{('bad', 'good')[n % 2]}\n" for n, text in enumerate(SMALL_TEXTS))
    )
    return tmp_path / "model", data


@pytest.mark.long
def test_each_engine_has_a_row_and_the_score_of_evaluate(classifier, tmp_path, capsys):
    model, data = map(str, classifier)
    picture = tmp_path / "engines.png"
    assert (
        main(["bench", "engines", model, "--data", data, "--texts", "4", "--picture", str(picture), "--json"])
        == 0
    )
    rows = json.loads(capsys.readouterr().out)
    assert [(row["engine"], row["dtype"]) for row in rows] == [
        ("jax", "float32"), ("jax", "bfloat16"), ("onnxruntime", "float32"), ("onnxruntime", "int8")
    ]  # fmt: skip
    accuracy = bert_jax.evaluate(model, data)["metrics"]["accuracy"]
    for row in rows:
        figures = row["figures"]
        assert row["model"] == model and row["bytes"] > 1000 and figures["metric"] == "accuracy"
        assert (
            figures["texts_per_second"] > 0 and figures["one_text_p50_ms"] > 0 and figures["peak_bytes"] > 5e7
        )
        if row["dtype"] == "float32":
            assert figures["score"]["value"] == accuracy
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_an_embedder_is_measured_on_scored_pairs_and_on_documents(tmp_path):
    write_model(tmp_path / "model", heads=())
    pairs = tmp_path / "pairs.csv"
    rows = zip(SMALL_TEXTS, SMALL_TEXTS[::-1], range(8), strict=True)
    pairs.write_text("sentence1,sentence2,score\n" + "".join(f"{a},{b},{score}\n" for a, b, score in rows))
    figures = measure_engine(str(tmp_path / "model"), "jax", "float32", str(pairs), 3)
    assert (
        figures["score"]["value"]
        == bert_jax.evaluate(tmp_path / "model", pairs)["metrics"]["spearman"]["value"]
    )


def test_the_table_names_models_where_there_are_several(tmp_path):
    one = MeasuredEngine("models/a", "jax", "float32", 10**8, FIGURES)
    other = MeasuredEngine("models/b", "onnxruntime", "int8", 10**7, FIGURES)
    table = format_table([one])
    assert len(table) == 3 and "a" not in table[1].split()
    assert table[1].split()[:6] == ["jax", "float32", "0.7500", "(0.5000", "to", "0.8750)"]
    assert [line.split()[0] for line in format_table([one, other])[1:5]] == [
        "models/a", "jax", "models/b", "onnxruntime"
    ]  # fmt: skip
    plot_engines(tmp_path / "picture.png", [one, other])
    assert (tmp_path / "picture.png").stat().st_size > 5000
