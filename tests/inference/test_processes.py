"""One model in several threads and processes, and its copies."""

import copy
import multiprocessing
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning", "ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_is_refused_in_words(tmp_path):
    write_model(tmp_path)
    model = bert_jax.load(tmp_path)
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def answer() -> None:
        try:
            sender.send(model.encode("the cat").tolist())
        except BertJaxError as error:
            sender.send(str(error))

    child = multiprocessing.get_context("fork").Process(target=answer)
    child.start()
    assert receiver.poll(60) and "loaded before its process forked" in receiver.recv()
    child.join(60)
    assert child.exitcode == 0
