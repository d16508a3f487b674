"""The verbs that read lines: embed, fill-mask, import."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from tests.support.small_models import write_model

COMMAND = [sys.executable, "-m", "bert_jax"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    write_model(path, heads=("mlm",))
    return path


@pytest.mark.slow
def test_embed_writes_a_row_for_each_line(directory, tmp_path):
    texts = ["the cat sat", "", "cats on the mat ."] * 400
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    flags = ["--input", str(tmp_path / "lines.txt"), "--output", str(tmp_path / "out.npy")]
    assert main(["embed", "--model", str(directory), *flags]) == 0
    written = np.load(tmp_path / "out.npy", mmap_mode="r")
    assert written.dtype == np.float32 and written.shape == (1200, 8)
    np.testing.assert_allclose(
        written, bert_jax.Embedder.load(directory, pooling="mean").encode(texts), atol=1e-6
    )


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


@pytest.mark.slow
def test_ctrl_c_ends_quietly_and_leaves_no_half_file(directory, tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "embed", "--model", directory, "--output", tmp_path / "out.npy"], stdin=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for _ in range(20_000):  # more than a window
        process.stdin.write("the cat sat\n")
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size for path in tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert any(path.stat().st_size for path in tmp_path.iterdir()), "nothing was written yet"
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in process.stderr.read()
    assert not list(tmp_path.iterdir())
    process.stdin.close()
