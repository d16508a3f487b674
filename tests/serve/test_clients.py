"""Others' clients, at their latest versions and in an environment of their own, ask a server of ours."""

import json

import numpy as np
import pytest

import bert_jax
from tests.serve.client_checks import CHECKS
from tests.serve.processes import serving
from tests.support.environments import new_environment, run_command
from tests.support.minilm import MINILM
from tests.support.project import ROOT

pytestmark = [pytest.mark.long, pytest.mark.optimized]
CLIENTS = [
    "openai",
    "huggingface_hub",
    "cohere",
    "langchain-openai",
    "llama-index-embeddings-text-embeddings-inference",
    "numpy",
]
KEY = "a key, and not only letters: 7/+="


@pytest.fixture(scope="module")
def directories(served_models):
    return served_models | {"minilm": MINILM}


@pytest.fixture(scope="module")
def answers(directories):
    """The texts and vectors of each check."""
    with new_environment() as programs, serving(directories, API_KEY=KEY) as url:
        run_command(programs / "pip", "install", "--quiet", *CLIENTS)
        print(run_command(programs / "pip", "freeze"))
        script = ROOT / "tests/serve/client_checks.py"
        # The Hub's client refuses to ask any server if it is offline.
        written = run_command(programs / "python", script, url, API_KEY=KEY, HF_HUB_OFFLINE="0")
    return json.loads(written)


@pytest.mark.parametrize("check", CHECKS)
def test_clients_get_the_vectors_of_the_library(answers, directories, check):
    assert "embedder" in answers[check]
    for name, (texts, vectors) in answers[check].items():
        expected = bert_jax.Embedder.load(directories[name]).encode(texts)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


def test_a_client_gets_the_vectors_of_sentence_transformers(answers):
    library = pytest.importorskip("sentence_transformers")
    texts, vectors = answers["openai"]["minilm"]
    expected = library.SentenceTransformer(MINILM, device="cpu").encode(texts)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
