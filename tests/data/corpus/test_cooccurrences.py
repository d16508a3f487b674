"""Word embeddings read off a corpus."""

import math
from collections import Counter

import jax
import numpy as np
import pytest

from bert_jax import tasks
from bert_jax.data.corpus import cooccurrences
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.text.text_source import TextSource
from bert_jax.training.opened_run import make_params_loader, open_run
from tests.support.made_up_language import IDS, WORDS, join_documents, save_tokenizer
from tests.support.project import ROOT

TOPICS = [WORDS[:20], WORDS[20:40]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Documents of one of two topics, whose words stand together."""
    place = tmp_path_factory.mktemp("topics")
    random = np.random.default_rng(0)
    documents = [
        [[str(word) for word in random.choice(TOPICS[n % 2], 8)] for _ in range(10)] for n in range(200)
    ]
    (place / "text.txt").write_text(join_documents(documents))
    vocabulary = save_tokenizer(place / "vocabulary")
    prepare_corpus(
        TextSource([place / "text.txt"], "sentences"),
        vocabulary,
        place / "corpus",
        validation_ratio=0.05,
        processes=1,
    )
    return place / "corpus"


@pytest.fixture(scope="module")
def corpus(folder):
    return Corpus(folder)


def settings(folder):
    return [
        f"data.corpora={folder}", "model.hidden_size=32", "model.intermediate_size=64", "model.num_hidden_layers=1",
        "model.num_attention_heads=2", "data.sentence_objective=none", "data.lengths=24",
        "data.length_ratios=1", "data.batch_size=8",
        "embedding_init=cooccurrences",
    ]  # fmt: skip


def test_counts_and_information_are_those_of_the_definition(monkeypatch):
    monkeypatch.setattr(cooccurrences, "CHUNK", 7)  # pairs across chunks count once
    tokens = np.random.default_rng(1).integers(0, 5, 60, np.int32)
    expected = np.zeros((5, 5))
    for i, entry in enumerate(tokens):
        for j in range(max(i - cooccurrences.WINDOW, 0), min(i + cooccurrences.WINDOW + 1, 60)):
            if i != j:
                expected[entry, tokens[j]] += 1 / abs(i - j)
    counts = cooccurrences.neighbours(tokens, 5)
    np.testing.assert_allclose(counts.toarray(), expected, rtol=1e-5)

    totals = expected.sum(1)
    flattened = totals**0.75 / (totals**0.75).sum()
    positive = np.maximum(np.log(expected / totals[:, None] / flattened), 0)
    np.testing.assert_allclose(
        cooccurrences.pointwise_mutual_information(counts).toarray(), positive, rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
def test_entries_that_stand_together_are_near(corpus):
    entries = corpus.tokenizer.size
    vectors, logs = cooccurrences.cooccurrence_embeddings([corpus], entries, 16)
    one, other = ([IDS[word] for word in topic] for topic in TOPICS)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    assert (unit[one] @ unit[one].T).mean() > (unit[one] @ unit[other].T).mean() + 0.3
    assert vectors[one].std() == pytest.approx(cooccurrences.SPREAD, rel=0.1)
    seen = Counter(corpus.train.tokens.tolist())
    assert not vectors[[n for n in range(entries) if seen[n] < cooccurrences.FEWEST]].any()
    assert logs.mean() == pytest.approx(0, abs=1e-6)
    assert logs[one[0]] - logs[0] == pytest.approx(math.log(seen[one[0]] + 1), rel=1e-5)
    again, _ = cooccurrences.cooccurrence_embeddings([corpus], entries, 16)
    np.testing.assert_array_equal(vectors, again)


@pytest.mark.slow
def test_a_run_begins_with_them(folder, corpus):
    """One of two models, of which the first is the generator."""
    module, config = tasks.load_config(f"{ROOT}/configs/electra.py:tiny", settings(folder))
    run = open_run(module.open, config)
    task = run.task
    begun = task.split_params(make_params_loader(run)())
    random = task.split_params(jax.jit(task.init)(jax.random.key(config.seed, impl="threefry2x32")))
    table, other = (models["generator"]["encoder"]["embeddings"]["words"] for models in (begun, random))
    vectors, logs = cooccurrences.cooccurrence_embeddings([corpus], corpus.tokenizer.size, table.shape[1])
    known = vectors.any(1)
    np.testing.assert_array_equal(table[known], vectors[known])
    np.testing.assert_array_equal(table[~known], other[~known])
    np.testing.assert_array_equal(begun["generator"]["mlm"]["bias"], logs)
    np.testing.assert_array_equal(begun[""]["encoder"]["embeddings"]["words"], table)
    ours, theirs = (models[""]["encoder"]["layers"] for models in (begun, random))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
