"""The stream against the published procedure, statistic by statistic, over tens of thousands of examples.

The bounds have power: each of the long tests breaks one thing and must see the comparison fail.
"""

import random
from itertools import product

import numpy as np
import pytest

from bert_jax.data.corpus import masking
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.data.corpus.stream import Stream
from bert_jax.data.randomness import random_bits, to_unit_floats
from bert_jax.text.text_source import TextSource
from tests.support.cases import long_except
from tests.support.made_up_language import (
    ENTRIES,
    join_documents,
    random_documents,
    save_tokenizer,
    token_ids,
)
from tests.support.published_examples import make_sentence_pairs, mask_row

LENGTH = 128
CAP = 20
DOCUMENTS = 8000
SPECIAL = range(5)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("published")
    (root / "text.txt").write_text(join_documents(random_documents(DOCUMENTS, seed=1)))
    vocabulary = save_tokenizer(root / "vocabulary")
    prepare_corpus(
        TextSource([root / "text.txt"], "sentences"), vocabulary, root / "corpus", validation_ratio=0
    )
    return root / "corpus"


@pytest.fixture(scope="module")
def theirs():
    """Statistics of the published procedure over the same text."""
    rng = random.Random(2)
    documents = [[token_ids(s) for s in document] for document in random_documents(DOCUMENTS, seed=1)]
    replacements = list(range(len(SPECIAL), len(ENTRIES)))
    seen = {name: [] for name in ("a", "b", "label", "targets", "fate", "random")}
    for a, b, is_random in make_sentence_pairs(documents, LENGTH, 0.1, rng):
        row = [2, *a, 3, *b, 3]
        out, positions, originals = mask_row(row, set(SPECIAL), 4, replacements, CAP, rng)
        new = [out[i] for i in positions]
        gather(seen, len(a), len(b), is_random, new, originals)
    return {name: np.array(values) for name, values in seen.items()}


def ours(corpus, **changes) -> dict[str, np.ndarray]:
    """The same statistics of one pass of the stream."""
    config = DataConfig(
        corpora=(str(corpus),), batch_size=512, lengths=(LENGTH,), length_ratios=(1.0,), **changes
    )
    stream = Stream(config, seed=0, steps=10)
    seen = {name: [] for name in ("a", "b", "label", "targets", "fate", "random")}
    for batch in stream.batches(0, EXAMPLES // 512):
        for i in range(512):
            size = int(batch["attention_mask"][i].sum())
            b = int(batch["token_type_ids"][i].sum()) - 1
            k = int(batch["target_weights"][i].sum())
            positions, originals = batch["target_positions"][i, :k], batch["targets"][i, :k]
            assert (np.diff(positions) > 0).all(), "targets are drawn without replacement"
            assert (originals >= len(SPECIAL)).all(), "a special token is a target"
            new = batch["input_ids"][i, positions].tolist()
            gather(seen, size - 3 - b, b, batch["labels"][i], new, originals)
    return {name: np.array(values) for name, values in seen.items()}


EXAMPLES = 30 * 512
SORTS = "next_sentence", "sentence_order", "none"


def gather(seen, a, b, label, new, originals):
    seen["a"].append(a)
    seen["b"].append(b)
    seen["label"].append(int(label))
    seen["targets"].append((a + b + 3, len(new)))
    for token, original in zip(new, originals, strict=True):
        seen["fate"].append(0 if token == 4 else 2 if token == original else 1)
        if seen["fate"][-1] == 1:
            seen["random"].append(token)


def compare(ours, theirs):
    """Which statistics differ by more than chance would make them once in ten thousand comparisons."""
    found = []

    def expect(fine, complaint):
        if not fine:
            found.append(complaint)

    def same_share(p, q, n, m, what):
        middle = (p * n + q * m) / (n + m)
        errors = abs(p - q) / np.sqrt(middle * (1 - middle) * (1 / n + 1 / m))
        expect(errors < 4, f"{what}: {p:.4f} and {q:.4f}, {errors:.1f} standard errors apart")

    # One short target holds for a whole document, so examples come in groups: as many fewer independent ones.
    grouped = 3
    for name in ("a", "b"):
        distance = kolmogorov_smirnov(ours[name], theirs[name])
        bound = 2.2 * np.sqrt(grouped * (1 / len(ours[name]) + 1 / len(theirs[name])))
        expect(distance < bound, f"lengths of {name}: {distance:.4f}, bound {bound:.4f}")
    full = [np.mean(s["a"] + s["b"] == LENGTH - 3) for s in (ours, theirs)]
    same_share(*full, len(ours["a"]) / grouped, len(theirs["a"]) / grouped, "full rows")
    same_share(
        np.mean(ours["label"]), np.mean(theirs["label"]), len(ours["a"]), len(theirs["a"]), "random pairs"
    )
    size, count = np.concatenate([ours["targets"], theirs["targets"]]).T
    wrong = count != np.minimum(np.clip(np.rint(0.15 * size), 1, CAP), size - 3)
    expect(not wrong.any(), f"number of targets: wrong in {wrong.sum()} rows of {len(wrong)}")
    for fate, name in enumerate(("masked", "replaced", "kept")):
        shares = [np.mean(s["fate"] == fate) for s in (ours, theirs)]
        same_share(*shares, len(ours["fate"]), len(theirs["fate"]), name)
    for s in (ours, theirs):
        expect(s["random"].min() >= len(SPECIAL), "a special token stands for a target")
        ids = np.bincount(s["random"], minlength=len(ENTRIES))[len(SPECIAL) :]
        expected = len(s["random"]) / len(ids)
        chi2 = ((ids - expected) ** 2 / expected).sum()
        expect(
            abs(chi2 - len(ids)) < 4 * np.sqrt(2 * len(ids)), f"random ids: chi2 {chi2:.0f} for {len(ids)}"
        )
    return found


def heads(complaints):
    return [complaint.split(":")[0] for complaint in complaints]


def kolmogorov_smirnov(x, y) -> float:
    values = np.union1d(x, y)
    below = [np.searchsorted(np.sort(s), values, side="right") / len(s) for s in (x, y)]
    return float(np.abs(below[0] - below[1]).max())


@pytest.mark.ci
def test_the_stream_agrees(corpus, theirs):
    found = ours(corpus)
    assert len(found["a"]) > 15_000 and len(theirs["a"]) > 20_000
    assert compare(found, theirs) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"mlm_probability": 0.13}, "number of targets"),
        ({"mask_replace_prob": 0.85, "random_replace_prob": 0.05}, "masked"),
        ({"short_seq_prob": 0.2}, "lengths of a"),
    ],
)
def test_other_numbers_are_caught(corpus, theirs, changes, complaint):
    assert complaint in heads(compare(ours(corpus, **changes), theirs))


@pytest.mark.long
def test_bernoulli_masking_is_caught(corpus, theirs, monkeypatch):
    def bernoulli(maskable, wanted, keys):
        length = maskable.shape[1]
        chosen = maskable & (to_unit_floats(random_bits(keys[:, None], np.arange(length))) < 0.15)
        return chosen & (np.cumsum(chosen, axis=1) <= DataConfig().max_targets(length))

    monkeypatch.setattr(masking, "choose_tokens", bernoulli)
    assert heads(compare(ours(corpus), theirs)) == ["number of targets"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("examples", "length"),
    long_except(product(SORTS, (64, 128)), list(product(SORTS, [128]))),
)
def test_every_sentence_is_visited_once_or_counted(corpus, examples, length):
    config = DataConfig(
        corpora=(str(corpus),), lengths=(length,), length_ratios=(1.0,), sentence_objective=examples
    )
    stream = Stream(config, seed=3, steps=10)
    part, plan = Corpus(corpus).train, stream.order.plan(0, length, 0)
    visits = np.zeros(len(part.tokens), int)
    for row in plan.table:
        given_up = row["length"][:1] if examples == "next_sentence" and row["label"] else row["length"]
        for start, size in zip(row["start"], given_up, strict=False):
            visits[int(start) : int(start) + int(size)] += 1
    assert visits.max() == 1
    assert (visits == 0).sum() == plan.counts["tokens_cut"]
    seen = np.add.reduceat(visits, part.sentences[:-1].astype(int))
    assert (seen == 0).sum() == plan.counts["sentences_dropped"]
    assert plan.counts["sentences_used"] == len(part.sentences) - 1
    assert (plan.table["length"].sum(axis=1) + 3 <= length).all() or examples == "none"


@pytest.mark.slow
def test_sides_are_cut_at_either_end_alike(corpus):
    stream = Stream(DataConfig(corpora=(str(corpus),), lengths=(64,), length_ratios=(1.0,)), seed=3, steps=10)
    table, sentences = stream.order.plan(0, 64, 0).table, Corpus(corpus).train.sentences
    for side in (0, 1):
        start, size = table["start"][:, side], table["length"][:, side]
        front, back = (int((~np.isin(edge, sentences)).sum()) for edge in (start, start + size))
        assert front > 1000 and abs(front - back) < 4 * np.sqrt(front + back)
