"""The verbs that read lines: embed, fill-mask, import."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from tests.support.small_models import write_model


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    write_model(path, heads=("mlm",))
    return path


@pytest.mark.slow
def test_embed_without_output_prints_json(directory, tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("the cat\nmat\n")
    assert main(["embed", "--model", str(directory), "--input", str(tmp_path / "lines.txt")]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(
        printed, bert_jax.Embedder.load(directory, pooling="mean").encode(["the cat", "mat"]), atol=1e-6
    )


@pytest.mark.slow
def test_fill_mask_prints_the_fillings(directory, capsys):
    flags = ["fill-mask", "--model", str(directory), "--top-k", "2"]
    assert main([*flags, "the [MASK] sat", "[MASK] cat [MASK]"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 6 and all(0 < float(line.split()[0]) < 1 for line in shown)
    assert main([*flags, "the [MASK] sat", "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [f"{f['score']:.4f}  {f['text']}" for f in printed] == shown[:2]


@pytest.mark.slow
def test_import_writes_a_new_directory(directory, tmp_path, capsys):
    words = ["import", str(directory), str(tmp_path / "new")]
    assert main(words) == 0
    assert "bert with mlm" in capsys.readouterr().out
    texts = ["the cat sat on the mat ."]
    np.testing.assert_array_equal(
        bert_jax.load(tmp_path / "new").encode(texts), bert_jax.load(directory).encode(texts)
    )
    assert main(words) == 1
    assert "is not empty" in capsys.readouterr().err
