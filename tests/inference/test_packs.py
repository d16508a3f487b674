"""Texts that share rows, as on an accelerator, give what texts with rows of their own give."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

import bert_jax
from bert_jax.hub.sentence_transformers import EmbedderSettings, Projection
from bert_jax.inference import engines
from bert_jax.inference.batching import BatchShapes, make_batches
from bert_jax.inference.computations import POOLER, Computation, HeadLogits, HiddenStates, PooledStates
from bert_jax.inference.engines.jax import ACCELERATOR_SHAPES, CPU_SHAPES, JaxEngine
from bert_jax.inference.runner import Runner
from bert_jax.models.heads import HEADS
from bert_jax.models.pooling import POOLING_WEIGHTS
from bert_jax.text.encoding import Encoding
from tests.support.adapters import write_adapter
from tests.support.cases import long_except
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.small_models import SMALL_TEXTS, write_model

LABELS = ("a", "b", "c")
BERT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 66,
}  # fmt: skip
FAMILIES = FAMILY_CONFIGS | {"bert": BERT, "roberta": BERT}
PROJECTION = Projection(8)
WANTED: dict[str, Computation] = {
    "hidden states": HiddenStates(),
    "pooler": PooledStates(POOLER),
    "projection": PooledStates("max", projection=PROJECTION),
    **{how: PooledStates(how, how == "mean") for how in (*POOLING_WEIGHTS, "max")},
    **{head: HeadLogits(head, len(LABELS), head != "answer") for head in ("classify", "tag", "answer")},
    "compare_mean": HeadLogits("compare_mean", len(LABELS), True),
    "classify_cls": HeadLogits("classify_cls", len(LABELS)),
}


@pytest.fixture
def use_shapes(monkeypatch):
    """Sets the shapes of batches of the models that are opened next."""
    return lambda shapes: monkeypatch.setattr(engines.jax, "platform_shapes", lambda: shapes)


def draw_encodings(config, parts: int) -> list[Encoding]:
    """More texts than a row holds, from the shortest to the longest."""
    random = np.random.RandomState(3)
    lengths = [*random.randint(4, 20, 24), 60, 2 * parts, 33]
    return [
        Encoding(
            random.randint(1, config.vocab_size, n).tolist(),
            (np.arange(n) % max(1, min(2, config.type_vocab_size))).tolist(),
            [(0, 0)] * n,
            text_starts=(0, n // 2)[:parts],
        )
        for n in lengths
    ]


def assert_equal_in_shared_rows(use_shapes, family: str, wanted: Computation) -> None:
    heads = (wanted.head,) if isinstance(wanted, HeadLogits) else ()
    parts = 2 if heads and HEADS[heads[0]].compares else 1
    published = FAMILIES[family] | {"vocab_size": 61}
    layout = family_layout(family, published, heads, LABELS, pooler="pooler" in repr(wanted))
    if "Projection" in repr(wanted):
        layout = replace(layout, embedder=EmbedderSettings(projection=PROJECTION))
    random = np.random.RandomState(0)
    flat = {name: np.float32(0.2 * random.standard_normal(s)) for name, s in layout.shapes().items()}
    encodings, results = draw_encodings(layout.config, parts), []
    for shapes in (CPU_SHAPES, ACCELERATOR_SHAPES):
        use_shapes(shapes)
        engine = JaxEngine(layout.config, unflatten_dict(flat, sep="/"))
        model = Runner(layout, engine, SimpleNamespace(special=SimpleNamespace(pad=0)))
        results.append(model.run(encodings, wanted))
    for apart, together in zip(*results, strict=True):
        for one, other in zip(jax.tree.leaves(apart), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(other, one[: len(other)], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", long_except(WANTED, ("hidden states", "tag", "compare_mean")))
def test_texts_that_share_rows_give_the_same(use_shapes, name):
    assert_equal_in_shared_rows(use_shapes, "bert", WANTED[name])


@pytest.mark.slow
@pytest.mark.parametrize("family", long_except(FAMILIES, ("modernbert", "deberta-v2")))
def test_texts_share_rows_in_every_family(use_shapes, family):
    assert_equal_in_shared_rows(use_shapes, family, HiddenStates())


def flatten(results) -> tuple[list, list]:
    """The numbers in results, and all else."""
    if isinstance(results, float | np.ndarray):
        return np.ravel(results).tolist(), []
    if hasattr(results, "__dataclass_fields__"):
        results = vars(results)
    if isinstance(results, dict):
        results = list(results.values())
    if not isinstance(results, list | tuple):
        return [], [results]
    parts = [flatten(result) for result in results]
    return [n for numbers, _ in parts for n in numbers], [x for _, rest in parts for x in rest]


LONG = "the cat sat on the mat . cats sat on mat . the cat cat cat on the mat ."
TEXTS = [*SMALL_TEXTS, "", LONG, "the mat", *SMALL_TEXTS[::-1]] * 2
READABLE = [text for text in TEXTS if text]
CALLS = {
    "Embedder": ((), (), lambda model: model.encode(TEXTS, long_texts="windows")),
    "Classifier": (("classify",), LABELS, lambda model: model.predict_proba(READABLE)),
    "Reranker": (
        ("classify",), ("LABEL_0",), lambda model: model.predict([("the cat", text) for text in READABLE]),
    ),
    "Tagger": (("tag",), ("O", "B-X", "I-X"), lambda model: model.tag(TEXTS)),
    "QuestionAnswerer": (("answer",), (), lambda model: model.answer("the cat", [LONG, *SMALL_TEXTS] * 2)),
    "MaskedLM": (
        ("mlm",), (),
        lambda model: [
            model.fill_mask([f"[MASK] {text} [MASK]" for text in TEXTS]),
            model.pseudo_log_likelihood([LONG, "cats"]),
            model.attentions(TEXTS[:3]),
            model.hidden_states(TEXTS, layers="all"),
        ],
    ),
    "zero-shot": (
        ("classify",), ("entailment", "neutral"),
        lambda model: model.zero_shot(READABLE, ["cat", "mat"], hypothesis_template="on {}"),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of texts that are truncated
@pytest.mark.parametrize("name", CALLS)
def test_every_class_gives_the_same_in_the_same_order(use_shapes, tmp_path, name):
    heads, labels, call = CALLS[name]
    write_model(tmp_path, heads=heads, labels=labels)
    opens = {
        "Embedder": partial(bert_jax.Embedder.load, pooling="mean"),
        "Reranker": bert_jax.Reranker.load,
    }.get(name, bert_jax.load)
    results = []
    for shapes in (CPU_SHAPES, ACCELERATOR_SHAPES):
        use_shapes(shapes)
        results.append(flatten(call(opens(tmp_path))))
    (numbers, rest), (found, other) = results
    assert len(numbers) + len(rest) > 20 and other == rest
    np.testing.assert_allclose(found, numbers, atol=1e-5)


def test_short_texts_do_not_pay_for_long_ones():
    """Rows are nearly full, of few shapes, and hold every text once; no text is cut."""
    random = np.random.RandomState(0)
    lengths = [*random.geometric(0.04, 3000).clip(2, 512), 512]
    encodings = [Encoding([5] * n, [0] * n, [(0, 0)] * n) for n in lengths]
    seen, shapes, area = [], set(), 0
    for rows, batch in make_batches(encodings, 512, 0, ACCELERATOR_SHAPES):
        seen += [i for row in rows for i in row]
        shapes.add(batch["input_ids"].shape)
        area += batch["input_ids"].size
        for row, own in enumerate(rows):
            assert batch["lengths"][row][: len(own)].tolist() == [lengths[i] for i in own]
            assert batch["attention_mask"][row].sum() == sum(lengths[i] for i in own)
        assert batch["input_ids"].shape[0] in ACCELERATOR_SHAPES.row_counts(batch["input_ids"].shape[1])
    assert sorted(seen) == list(range(3001))
    assert area < 1.15 * sum(lengths) and len(shapes) < 8


def test_a_single_text_has_a_row_of_its_length():
    (rows, batch), *rest = make_batches([Encoding([5] * 9, [0] * 9, [])], 512, 0, ACCELERATOR_SHAPES)
    assert rows == [[0]] and not rest and batch["input_ids"].shape == (1, 16)


@pytest.mark.slow
def test_a_warm_model_compiles_no_more(use_shapes, tmp_path):
    write_model(tmp_path, heads=())
    use_shapes(BatchShapes(96, (16, 32, 48), shared=32))
    model = bert_jax.load(tmp_path)
    model.warm_up([4, 14], texts=6)
    known = set(model.engine.programs)
    for texts in (["the cat"], ["the " * 12] * 3, ["cats", "the " * 12, "", "on", "the mat", "sat"]):
        model.encode(texts)
    assert set(model.engine.programs) == known


@pytest.mark.slow
def test_texts_of_several_adapters_share_no_row(use_shapes, tmp_path):
    write_model(tmp_path / "base", heads=("classify",), labels=LABELS)
    own = write_adapter(tmp_path / "own", tmp_path / "base", "classify", ("no", "yes"), rank=2)
    use_shapes(ACCELERATOR_SHAPES)
    models, names = bert_jax.load(tmp_path / "base", adapters={"own": own}), ["", "own", "own", ""]
    mixed = [row["score"] for row in models.predict(SMALL_TEXTS[:4], names)]
    apart = [
        bert_jax.load(tmp_path / (name or "base")).classify(t).score
        for t, name in zip(SMALL_TEXTS, names, strict=False)
    ]
    np.testing.assert_allclose(mixed, apart, atol=1e-5)
