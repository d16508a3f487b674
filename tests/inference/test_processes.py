"""One model in several threads and processes, and its copies."""

import copy
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bert_jax
from tests.support.small_models import SMALL_TEXTS, write_model


@pytest.mark.slow
def test_pickles_and_copies_answer_as_the_model(tmp_path):
    write_model(tmp_path / "plain", heads=("classify",), labels=("bad", "good"))
    model = bert_jax.load(tmp_path / "plain", dtype="bfloat16")
    embedder = bert_jax.Embedder.load(tmp_path / "plain", pooling="cls")
    shutil.rmtree(tmp_path / "plain")  # what is loaded needs it no longer
    expected = model.predict_proba(SMALL_TEXTS)
    for same in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert type(same) is bert_jax.Classifier and same.config == model.config
        np.testing.assert_array_equal(same.predict_proba(SMALL_TEXTS), expected)
    same = pickle.loads(pickle.dumps(embedder))
    np.testing.assert_allclose(same.encode(SMALL_TEXTS), embedder.encode(SMALL_TEXTS), atol=1e-6)


@pytest.mark.slow
def test_threads_share_a_model(tmp_path):
    write_model(tmp_path)
    model = bert_jax.load(tmp_path)
    texts = [SMALL_TEXTS[i % len(SMALL_TEXTS)] for i in range(24)]
    expected = [model.encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        for vector, of_one in zip(pool.map(model.encode, texts), expected, strict=True):
            np.testing.assert_array_equal(vector, of_one)


FORK = """
import multiprocessing, sys
import bert_jax

model = bert_jax.load(sys.argv[1])
model.encode(["the cat", "the cat sat on the mat"])  # starts the threads of the engine
receiver, sender = multiprocessing.Pipe(duplex=False)

def answer():
    try:
        sender.send(model.encode("the cat").tolist())
    except bert_jax.BertJaxError as error:
        sender.send(str(error))

child = multiprocessing.get_context("fork").Process(target=answer)
child.start()
print(receiver.recv() if receiver.poll(60) else "no answer")
child.join(60)
sys.exit(child.exitcode)
"""


@pytest.mark.slow
def test_a_fork_is_refused_in_words(tmp_path):
    """In a process of its own: a fork has none of the threads that other tests leave, and may wait for their locks."""
    write_model(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path)], capture_output=True, text=True, timeout=180
    )
    assert ran.returncode == 0 and "loaded before its process forked" in ran.stdout, ran.stdout + ran.stderr
