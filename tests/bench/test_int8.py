"""Int8 files beside float32, on a small embedder."""

import re

import pytest

from bert_jax.hub import model_directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.text.wordpiece import WordPiece
from tests.bench.__main__ import main
from tests.support.onnx_models import random_params
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, SMALL_VOCABULARY


@pytest.mark.slow
def test_quality_and_speed_of_each_file_are_printed(tmp_path, capsys):
    layout = Layout(SMALL_CONFIG, embedder=EmbedderSettings(), pooler=False)
    hub.save_model(
        tmp_path / "model", layout, random_params(layout), WordPiece.from_vocabulary(SMALL_VOCABULARY)
    )
    rows = (f"a\tb\tc\td\t{n}\t{text}\t{SMALL_TEXTS[0]}" for n, text in enumerate(SMALL_TEXTS))
    (tmp_path / "pairs.csv").write_text("\n".join(rows) + "\n")
    files = ["--model", str(tmp_path / "model"), "--data", str(tmp_path / "pairs.csv")]
    assert main(["int8", *files, "--against", "onnxruntime-static", "--rounds", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    names = ("float32", "dynamic avx2", "onnxruntime-static")
    for name in names:
        assert sum(bool(re.match(rf"{name}: -?[\d.]+, [+-][\d.]+ \(", line)) for line in printed) == 1
        for what in ("in batches", "one at a time"):
            assert any(line.startswith(f"{what}, {name}: ") for line in printed)
    exact = next(line for line in printed if line.startswith("float32: "))
    assert exact.endswith("+0.00 (+0.00 to +0.00)")
