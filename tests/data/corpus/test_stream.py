"""The stream is a pure function of (corpus, seed, step), and what masking promises holds in its batches."""

import hashlib
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus import read_ahead
from bert_jax.data.corpus.corpus_directory import SPLITS, Corpus
from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.corpus.example_order import BLOCK, Mixture
from bert_jax.data.corpus.masking import Masking
from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.data.corpus.stream import Stream, phases
from bert_jax.text.text_source import TextSource
from tests.support.cases import long_except
from tests.support.made_up_language import (
    ENTRIES,
    join_documents,
    random_documents,
    save_tokenizer,
    token_ids,
)
from tests.support.published_examples import whole_word_groups

STEPS = (0, 1, 777, 1_000_000)
BATCH = 32


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("stream")
    (root / "text.txt").write_text(join_documents(random_documents(600, seed=5)))
    vocabulary = save_tokenizer(root / "vocabulary")
    prepare_corpus(
        TextSource([root / "text.txt"], "sentences"), vocabulary, root / "corpus", validation_ratio=0.05
    )
    return root / "corpus"


def opened(corpus, threads=None, seed=0, steps=1_200_000, **changes) -> Stream:
    settings = {"batch_size": BATCH, "lengths": (64, 128), "dupe_factor": 3} | changes
    return Stream(DataConfig(corpora=(str(corpus),), **settings), seed, steps, threads)


def digest(batch) -> str:
    parts = [
        f"{name} {value.dtype} {value.shape} ".encode() + value.tobytes() for name, value in batch.items()
    ]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def joined(parts) -> dict:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def boundary(stream: Stream, length: int) -> int:
    """The step whose batch has the last examples of the first pass and the first of the second."""
    return len(stream.order.plan(0, length, 0)) // BATCH


@pytest.mark.slow
@pytest.mark.parametrize(
    "examples", long_except(["next_sentence", "sentence_order", "none"], ["next_sentence"])
)
def test_any_step_can_be_made_again(corpus, examples, monkeypatch):
    stream = opened(corpus, sentence_objective=examples)
    steps = (*STEPS, boundary(stream, 64))
    assert {fact["pass"] for fact in stream.example_origins(steps[-1])} == {0, 1}
    wanted = {step: digest(stream.batch(step)) for step in steps}
    assert len(set(wanted.values())) == len(steps)
    again = opened(corpus, sentence_objective=examples)
    for step in steps:
        for hosts in (1, 2, 4):
            parts = [again.batch(step, i, hosts) for i in range(hosts)]
            assert all(len(part["input_ids"]) == BATCH // hosts for part in parts)
            assert digest(joined(parts)) == wanted[step]
    for threads, tensorflow in itertools.product((1, 2, 8), (True, False)):
        with monkeypatch.context() as context:
            context.setattr(read_ahead, "find_spec", lambda _, found=tensorflow: found)
            batches = opened(corpus, threads, sentence_objective=examples).batches(775, 778)
            assert digest(list(batches)[2]) == wanted[777]
    assert digest(opened(corpus, seed=1, sentence_objective=examples).batch(777)) != wanted[777]


KINDS = ({"sentence_objective": "next_sentence"}, {"sentence_objective": "sentence_order", "mask_unit": "word"},
         {"sentence_objective": "none", "mask_unit": "span"})  # fmt: skip


@pytest.mark.slow
def test_bytes_are_those_of_before(corpus):
    """A corpus and its plans stay in use when the code changes, and a run that goes on sees the same batches."""
    arrays = [
        path
        for path in sorted(corpus.rglob("*.npy"), key=lambda path: (path.parts[-2] == "train", path))
        if path.parts[-2] in SPLITS and "plans" not in path.parts
    ]
    content = hashlib.sha256(b"".join(path.read_bytes() for path in arrays)).hexdigest()[:16]
    assert (len(arrays), content) == (6, "8cd0ca8cec84cb05")
    made = []
    for changes in KINDS:
        stream = opened(corpus, seed=7, **changes)
        batches = [stream.batch(777), stream.batch(1_100_000), next(stream.validation_batches(64))]
        plan = max((corpus / "plans" / "train").glob(f"{stream.order.planner.name}-64-seed7-0-*.npy"))
        made.append((plan.stem.rsplit("-", 1)[1], *(digest(batch)[:16] for batch in batches)))
    assert made == [
        ("effc3fc1276e3b28", "b6c458ff1e7183dc", "2b29dcd23f5adeb8", "6242d8b17a9f2dab"),
        ("28e7def3b42e67bd", "43e588fd2e2ab4e8", "54f505d9bdcbc6b5", "340f5ca994288622"),
        ("e7114200f6b4d539", "139c1b220496a008", "424ea167986cf525", "0d70a7f255719de4"),
    ]


WITHOUT_TENSORFLOW = "from bert_jax.data.corpus import read_ahead\nread_ahead.find_spec = {}.get\n"


@pytest.mark.ci
@pytest.mark.parametrize("driver", ["", WITHOUT_TENSORFLOW], ids=["tf.data", "threads"])
def test_another_process_makes_the_same_and_ends(corpus, driver):
    """Also one that leaves with a pipeline still running."""
    code = (
        f"import sys\n{driver}from tests.data.corpus import test_stream as t\n"
        "stream = t.opened(sys.argv[1])\n"
        "running = stream.batches(777)\n"
        "print(t.digest(next(running)), t.digest(stream.batch(1_000_000)), flush=True)\n"
        "raise SystemExit(3)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, corpus], env=environment, capture_output=True, timeout=100
    )
    stream = opened(corpus)
    assert done.stdout.decode().split() == [digest(stream.batch(step)) for step in (777, 1_000_000)]
    assert done.returncode == 3 and done.stderr == b""


@pytest.mark.slow
def test_lengths_follow_the_schedule_and_shapes_are_known(corpus):
    stream = opened(corpus, steps=10)
    assert [stream.row_length(step) for step in range(12)] == [64] * 9 + [128] * 3
    batches = list(stream.batches(7, 11))
    assert [batch["input_ids"].shape[1] for batch in batches] == [64, 64, 128, 128]
    for step, batch in zip(range(7, 11), batches, strict=True):
        shapes = stream.config.features(BATCH, stream.row_length(step))
        assert {name: (value.shape, value.dtype) for name, value in batch.items()} == shapes
        assert digest(batch) == digest(stream.batch(step))


def test_a_phase_goes_on_with_the_examples_of_an_earlier_one_of_its_length():
    def origins(lengths, steps=10):
        made = phases(DataConfig(lengths=lengths, length_ratios=(1.0,) * len(lengths)), steps)
        return [(phase.origin, phase.stop) for phase in made]

    assert origins((64, 64)) == [(0, 5), (0, 10)], "as one phase of ten steps"
    assert origins((64, 128, 64, 128), 8) == [(0, 2), (2, 4), (2, 6), (4, 8)]
    assert origins((64, 128, 256), 9) == [(0, 3), (3, 6), (6, 9)]


@pytest.mark.slow
def test_a_pass_has_every_example_once_in_an_order_of_its_own(corpus):
    stream = opened(corpus, lengths=(64,), length_ratios=(1.0,))
    orders: dict[int, list[int]] = {}
    for step in range(4 * boundary(stream, 64)):
        for fact in stream.example_origins(step):
            assert fact["plan"] == fact["pass"] % 3
            orders.setdefault(fact["pass"], []).append(fact["example"])
    for number in range(3):
        assert sorted(orders[number]) == list(range(len(stream.order.plan(0, 64, number))))
    assert orders[0][:100] != orders[3][:100]


@pytest.mark.slow
def test_masks_are_fresh_on_every_pass_unless_frozen(corpus):
    def row_of_each_pass(**changes):
        stream = opened(corpus, lengths=(64,), length_ratios=(1.0,), dupe_factor=1, **changes)
        size, found = len(stream.order.plan(0, 64, 0)), {}
        for step in range(2 * size // BATCH + 2):
            for row, fact in enumerate(stream.example_origins(step)):
                if fact["example"] == 7:
                    found[fact["pass"]] = {
                        name: value[row].tolist() for name, value in stream.batch(step).items()
                    }
        return found[0], found[1]

    fresh, frozen = row_of_each_pass(), row_of_each_pass(dynamic_masking=False)
    assert (
        fresh[0]["token_type_ids"] == fresh[1]["token_type_ids"]
        and fresh[0]["input_ids"] != fresh[1]["input_ids"]
    )
    assert frozen[0] == frozen[1]


@pytest.mark.slow
def test_rows_are_text_of_the_corpus(corpus):
    """What stands in the rows, targets put back, are runs of a document's tokens between special ones."""
    documents = (sum(map(token_ids, document), []) for document in random_documents(600, seed=5))
    everything = "|".join("".join(f",{i}" for i in document) + "," for document in documents)

    def stands_there(piece):
        return "".join(f",{token}" for token in piece) + "," in everything

    batch = opened(corpus).batch(5)
    followed = 0
    for i in range(BATCH):
        row, size = restored(batch, i), int(batch["attention_mask"][i].sum())
        assert batch["attention_mask"][i].tolist() == [1] * size + [0] * (64 - size) and not row[size:].any()
        middle = size - int(batch["token_type_ids"][i].sum())
        assert batch["token_type_ids"][i].tolist() == [0] * middle + [1] * (size - middle) + [0] * (64 - size)
        assert row[0] == 2 and row[middle - 1] == 3 and row[size - 1] == 3
        a, b = row[1 : middle - 1], row[middle : size - 1]
        assert stands_there(a) and stands_there(b)
        if size < 64:  # nothing was cut
            assert stands_there([*a, *b]) != batch["labels"][i]
            followed += 1 - batch["labels"][i]
    assert followed
    batch = opened(corpus, sentence_objective="none").batch(5)
    assert not batch["token_type_ids"].any() and batch["segment_ids"].max() > 1
    for i in range(BATCH):
        row, segment_ids = restored(batch, i), batch["segment_ids"][i]
        assert ((segment_ids > 0) == batch["attention_mask"][i]).all() and not row[segment_ids == 0].any()
        for number in range(1, segment_ids.max() + 1):
            here = np.flatnonzero(segment_ids == number)
            assert batch["cls_positions"][i, number - 1] == here[0] and (np.diff(here) == 1).all()
            assert row[here[0]] == 2 and row[here[-1]] == 3 and stands_there(row[here[1:-1]])


def restored(batch, row) -> np.ndarray:
    out, k = batch["input_ids"][row].copy(), int(batch["target_weights"][row].sum())
    out[batch["target_positions"][row, :k]] = batch["targets"][row, :k]
    assert (batch["target_positions"][row, k:] == 0).all() and (batch["targets"][row, k:] == 0).all()
    return out


def test_whole_words_are_never_split_and_fill_the_count(corpus):
    """Each row against the published rule: words in random order, one that no longer fits is passed over."""
    continues = {i for i, entry in enumerate(ENTRIES) if entry.startswith("##")}
    batch = opened(corpus, mask_unit="word", batch_size=256).batch(0)
    exact = 0
    for i in range(256):
        row = restored(batch, i)
        positions = set(batch["target_positions"][i, : int(batch["target_weights"][i].sum())].tolist())
        groups = whole_word_groups(row[: batch["attention_mask"][i].sum()].tolist(), set(range(5)), continues)
        for group in groups:
            assert not positions & set(group) or positions >= set(group), "a word is split"
        wanted = min(10, max(1, round(0.15 * int(batch["attention_mask"][i].sum()))))
        left_out = [len(group) for group in groups if not positions & set(group)]
        assert len(positions) == wanted or len(positions) + min(left_out) > wanted
        exact += len(positions) == wanted
    assert exact > 200


def test_span_lengths_follow_their_distribution(corpus):
    """Lengths in words are drawn in proportion to 1, 1/2, 1/3."""
    stream = opened(corpus, mask_unit="span", lengths=(512,), length_ratios=(1.0,))
    drawn = np.zeros(5)
    masker = Masking(stream.config, 512, stream.tokenizer.special, stream.continues)
    tokens = np.full((256, 512), 700, np.int32)
    tokens[:, 0] = 2
    keys = np.arange(256).astype(np.uint64) * 12345
    spans = masker.number_groups(tokens, tokens > 4, keys)
    for row in spans:
        drawn += np.bincount(np.bincount(row)[1:-1], minlength=5)
    shares = drawn[1:4] / drawn.sum()
    assert drawn[4] == 0 and np.abs(shares - np.array([6, 3, 2]) / 11).max() < 0.01


@pytest.mark.slow
def test_validation_has_every_example_once(corpus):
    stream = opened(corpus)
    batches = list(stream.validation_batches(64))
    count = len(stream.order.validation_rows(64)[0])
    assert len(batches) == -(-count // BATCH) and count % BATCH
    last, real = batches[-1], count % BATCH
    assert last["label_weights"].tolist() == [1] * real + [0] * (BATCH - real)
    assert not last["attention_mask"][real:].any() and not last["target_weights"][real:].any()
    rows = {
        restored(batch, i).tobytes() for batch in batches for i in range(BATCH) if batch["label_weights"][i]
    }
    assert len(rows) == count
    halves = [list(stream.validation_batches(64, i, 2)) for i in range(2)]
    assert [digest(joined(parts)) for parts in zip(*halves, strict=True)] == [
        digest(batch) for batch in batches
    ]


def test_mixture_counts_are_closed_form():
    mixture = Mixture([0.7, 0.2, 0.1], key=3)
    owner, place = mixture(np.arange(2 * BLOCK))
    for c, share in enumerate((0.7, 0.2, 0.1)):
        assert place[owner == c].tolist() != sorted(place[owner == c].tolist())
        assert sorted(place[owner == c]) == list(range((owner == c).sum()))
        assert abs((owner == c).mean() - share) < 1 / BLOCK
    some = np.array([5, 70_000, 12])
    assert [a.tolist() for a in mixture(some)] == [owner[some].tolist(), place[some].tolist()]


@pytest.mark.slow
def test_corpora_are_mixed_by_weight_and_by_size_to_the_alpha(corpus, tmp_path):
    (tmp_path / "small.txt").write_text(join_documents(random_documents(60, seed=6)))
    vocabulary = save_tokenizer(tmp_path / "vocabulary")
    prepare_corpus(
        TextSource([tmp_path / "small.txt"], "sentences"), vocabulary, tmp_path / "small", validation_ratio=0
    )

    def share(**changes):
        both = DataConfig(
            corpora=(str(corpus), str(tmp_path / "small")), batch_size=BATCH, lengths=(64, 128), **changes
        )
        stream = Stream(both, 0, 100)
        facts = [fact["corpus"] for step in range(100) for fact in stream.example_origins(step)]
        assert np.array_equal(stream.batch(3)["input_ids"][8:16], stream.batch(3, 1, 4)["input_ids"])
        return np.mean(facts)

    sizes = [Corpus(path).manifest["counts"]["train"]["tokens"] for path in (corpus, tmp_path / "small")]
    assert abs(share(weights=(1.0, 3.0)) - 0.75) < 0.02
    assert abs(share() - sizes[1] / sum(sizes)) < 0.02
    rooted = np.sqrt(sizes)
    assert abs(share(alpha=0.5) - rooted[1] / rooted.sum()) < 0.03


def test_another_tokenizers_corpus_is_refused(corpus, tmp_path):
    (tmp_path / "text.txt").write_text(join_documents(random_documents(60, seed=6)))
    other = save_tokenizer(tmp_path / "vocabulary", [*ENTRIES, "more"])
    prepare_corpus(
        TextSource([tmp_path / "text.txt"], "sentences"), other, tmp_path / "other", validation_ratio=0
    )
    with pytest.raises(BertJaxError, match="tokenizer"):
        Stream(DataConfig(corpora=(str(corpus), str(tmp_path / "other"))), 0, 10)


def test_batches_that_cannot_be_are_refused(corpus):
    with pytest.raises(BertJaxError, match="length 64.*100000"):
        opened(corpus, batch_size=100_000).batch(0)
    with pytest.raises(BertJaxError, match="of 3"):
        opened(corpus).batch(0, 0, 3)


@pytest.mark.slow
@pytest.mark.parametrize("tensorflow", [True, False])
def test_a_failure_in_the_pipeline_is_ours_to_read(corpus, monkeypatch, tensorflow):
    monkeypatch.setattr(read_ahead, "find_spec", lambda _: tensorflow)
    stream = opened(corpus)
    batches = stream.batches()
    next(batches)

    def fail(*_):
        raise BertJaxError("full")

    monkeypatch.setattr(stream.order, "locate", fail)
    with pytest.raises(BertJaxError, match="full"):
        for _ in range(100):
            next(batches)
