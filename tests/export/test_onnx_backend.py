"""sentence-transformers reads exported directories with `backend="onnx"`, in an environment of its own.

Its newest version with that backend needs an older transformers than the one that our tests compare with. Everything
else, such as torch, is that of this environment.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from tests.support.minilm import MINILM, varied_texts

RELEASES = ("sentence-transformers==5.7.0", "transformers==4.57.6", "optimum-onnx[onnxruntime]==0.1.0")
READER = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer

provider = {"provider": "CPUExecutionProvider"}
for number, file in enumerate(sys.argv[2:]):
    model = SentenceTransformer("onnx", backend="onnx", device="cpu", model_kwargs=provider | {"file_name": file})
    np.save(f"{number}.npy", model.encode(np.load(sys.argv[1]).tolist()))
"""
TEXTS = varied_texts(60)


@pytest.fixture
def python():
    """The interpreter of an environment, in which these releases come before the packages of this one."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        own = Path(sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder}))
        (own / "these.pth").write_text(sysconfig.get_path("purelib"))
        interpreter = f"{folder}/bin/python"
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *RELEASES], check=True)
        yield interpreter


@pytest.mark.long
@pytest.mark.optimized
def test_vectors_of_an_exported_directory(python, tmp_path):
    flags = ["--format", "onnx", "--quantize", "avx2", "--output", str(tmp_path / "onnx")]
    assert main(["export", MINILM, *flags]) == 0
    np.save(tmp_path / "texts.npy", TEXTS)
    files = ("onnx/model.onnx", "onnx/model_quint8_avx2.onnx")
    # transformers refuses the Keras of this environment, which it does not need.
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "USE_TF": "0"}
    subprocess.run([python, "-c", READER, "texts.npy", *files], cwd=tmp_path, env=environment, check=True)
    expected = bert_jax.load(MINILM).encode(TEXTS)
    exact, rounded = (np.load(tmp_path / f"{number}.npy") for number in range(2))
    np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-5)
    assert (rounded * expected).sum(-1).min() > 0.96
