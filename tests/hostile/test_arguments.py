"""What classes and functions say to arguments that they cannot take: one line, and never a traceback of a library's.

A case is a call as a program has it, and the number of the value that stands for WRONG in it.
"""

import inspect
import io
import json
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from tests.hostile.material import CLASSES
from tests.hostile.outcomes import LONGEST
from tests.support.cases import draw_cases

TEXTS = (
    None, 3, 2.5, True, b"w1", {"w1": 1}, {"w1"}, [None], [3], [["w1", 3]], [("w1", "w2", "w3")], [b"w1"], ["w1", None],
    np.zeros(3), np.zeros((2, 2)), np.array("w1"), np.array([["w1", "w2"]]), object(), len, range(3), [["w1"]], (),
)  # fmt: skip
NUMBERS = ("x", None, float("nan"), float("inf"), -1, 0, 2.5, [1], np.zeros(2), 10**30, True)
PATHS = (None, 3, "", [], b"masked", {}, np.zeros(2), io.StringIO(), "nowhere/at/all")
NAMES = (3, "nowhere", [], {}, np.zeros(2), b"cls", object(), None)
FLAGS = ("no", 1, 0.0, [], np.zeros(2), object(), None)
# Vectors that cannot be compared with those of 32 numbers.
VECTORS = (
    np.zeros(3), np.zeros((2, 2)), np.zeros((1, 1, 32)), np.array(1.0), np.zeros((2, 0)), np.ones(32, complex),
    np.full(32, np.nan), np.full((1, 32), 1e30), [[float("inf")] * 32], [[1j] * 32],
    np.ones(32, bool), [[0.5] * 32, [0.5]], [np.zeros(3)], [np.zeros(32), "w1"], [[["w1"]]], jnp.zeros(3),
)  # fmt: skip
DOCUMENTS = (
    None, 3, True, b"w1", {"w1": 1}, {"w1"}, [None], [3], [b"w1"], [["w1"]], np.zeros((2, 2)), object(), [],
    [" "], "", "nowhere.txt", Path("nowhere"), [Path("nowhere")], pd.DataFrame({"text": ["a"]}), [("a",)], [("a", 3)],
    [(None, "w1")], [("a", "w1"), ("a", "w2")], [{"text": "w1"}], [{"id": "a"}], [{1: "a"}],
    [{"id": 2.5, "text": "w1"}], [{"id": "a", "text": ["w1"]}], [{"id": "a", "text": "w1", "title": 3}], ["w1", 3],
)  # fmt: skip
TREES = (None, 3, [], {}, {"encoder": 1}, "params", np.zeros(2))
CHOICES = (3, "fast", [], b"hnsw", True, "binary")
WEIGHTS = (3, "keywords", ["keywords"], {"x": 1}, {"keywords": "x"}, {"keywords": -1}, {3: 3})
# After a call stand the numbers of values that it can take: no texts at all, columns that may be absent, a share.
CALLS = (
    (TEXTS, """
        mlm.hidden_states(WRONG)
        mlm.attentions(WRONG)
        mlm.tokenize(WRONG)
        mlm.fill_mask(WRONG)
        mlm.pseudo_log_likelihood(WRONG)
        mlm.tokenizer.encode(WRONG)  # 21
        plain.encode(WRONG)  # 21
        embed.encode(WRONG)  # 21
        static.encode(WRONG)  # 21
        embed.similarity(['w1'], WRONG)  # 21
        sparse.encode(WRONG)  # 21
        sparse.encode_query(WRONG)  # 21
        tokens.encode(WRONG)  # 21
        tokens.encode_query(WRONG)  # 21
        tokens.rank(WRONG, ['w1 w2'])
        tokens.rank('w1', WRONG)  # 21
        m3.encode_all(WRONG)  # 21
        m3.compute_score(WRONG)
        m3.compute_score([('w1', WRONG)])
        classify.predict(WRONG)
        classify.classify(WRONG)
        classify.in_distribution_p_value(WRONG)
        classify.zero_shot(WRONG, ['w1', 'w2'])
        classify.zero_shot('w1', WRONG)
        embed.zero_shot(WRONG, ['w1', 'w2'])
        embed.zero_shot('w1', WRONG)
        number.predict(WRONG)
        tag.tag(WRONG)
        tag.tag_words(WRONG)  # 10 20 21
        answer.answer(WRONG, 'w1 w2')  # 21
        rank.predict(WRONG)
        rank.rank(WRONG, ['w1 w2'])
        rank.rank('w1', WRONG)  # 21
        Index.open(indexed()).search(WRONG)  # 21
        Index.open(indexed()).remove(WRONG)  # 21
        bert_jax.finetune(small / 'masked', WRONG, ['a'], workdir='run')
        mine(pairs=WRONG)
        adapted(small).predict(WRONG, ['mine'])
        adapted(small).predict(['w1'], WRONG)
        mine(corpus=WRONG)  # 0 6
    """),
    (NUMBERS, """
        mlm.fill_mask('w1 [MASK]', top_k=WRONG)
        mlm.fill_mask('w1 [MASK]', steps=WRONG)  # 5
        mlm.hidden_states('w1', layers=WRONG)  # 1 4 5 7
        mlm.tokenizer.encode(['w1'], max_length=WRONG)  # 1
        mlm.tokenizer.decode([WRONG])  # 5 10
        rank.rank('w1', ['w2'], top_k=WRONG)  # 1
        answer.answer('w1', 'w2', longest=WRONG)
        classify.classify('w1', min_precision=WRONG)  # 1
        classify.classify('w1', min_precision={'no': WRONG})
        embed.encode('w1', batch_size=WRONG)  # 1
        embed.encode('w1', truncate_dim=WRONG)  # 1
        embed.zero_shot('w1', ['w1', 'w2'], temperature=WRONG)  # 6 9
        sparse.encode('w1', max_active_dims=WRONG)  # 1
        sparse.encode_query('w1', batch_size=WRONG)  # 1
        sparse.decode(sparse.encode('w1'), top_k=WRONG)  # 1
        tokens.encode('w1', batch_size=WRONG)  # 1
        tokens.encode('w1', pool_factor=WRONG)  # 1 6 9
        tokens.rank('w1', ['w2'], top_k=WRONG)  # 1
        m3.encode_all('w1', batch_size=WRONG)  # 1
        m3.compute_score(('w1', 'w2'), batch_size=WRONG)  # 1
        m3.compute_score(('w1', 'w2'), WRONG)
        m3.compute_score(('w1', 'w2'), (1, 1, WRONG))  # 5 6 9
        plain.warm_up([WRONG])
        bert_jax.load(masked, head='answer', seed=WRONG)  # 4 5
        opened_task(small).batches(WRONG)  # 5
        opened_task(small).batches(0, WRONG)  # 1 5
        build(passage_tokens=WRONG)  # 1
        build(pool_factor=WRONG, multi_vector_model=paths['tokens'])  # 1 6 9
        Index.open(indexed()).search('w1', top_k=WRONG)
        bert_jax.evaluate(masked, small / 'labelled.jsonl', dimensions=WRONG)
        prepare(processes=WRONG)  # 1
        prepare(validation_ratio=WRONG)  # 5
        learn(size=WRONG)  # 1
        mine(negatives=WRONG)
        mine(range_min=WRONG)  # 5
        mine(margin=WRONG)  # 1 5
        mine(min_score=WRONG)  # 1 4 5
    """),
    (PATHS, """
        bert_jax.load(WRONG)
        bert_jax.load(masked, adapters=WRONG)  # 0 5
        bert_jax.load(masked, adapters={'mine': WRONG})
        adapted(small).add('other', WRONG)
        bert_jax.Embedder.load(WRONG)
        bert_jax.SparseEmbedder.load(WRONG)
        bert_jax.MultiVectorEmbedder.load(WRONG)
        bert_jax.M3Embedder.load(WRONG)
        mlm.save(WRONG)  # 8
        bert_jax.train('classify', workdir=WRONG, init=masked, data={'train': small / 'labelled.jsonl'})
        bert_jax.finetune(masked, ['w1', 'w2'], ['a', 'b'], workdir=WRONG)
        opened_task(small).save(WRONG, opened_task(small).initial_params())  # 8
        bert_jax.open_vectors(WRONG)
        bert_jax.follow(WRONG)
        Index.open(WRONG)
        Index.open(indexed(), WRONG)  # 0 8
        Index.open(indexed(), engine=WRONG)
        Index.open(indexed()).search('w1', reranker=WRONG)  # 0
        Index.build(TWO, WRONG)  # 8
        build(model=WRONG)  # 0
        build(multi_vector_model=WRONG)  # 0
        bert_jax.evaluate(WRONG, small / 'labelled.jsonl')
        evaluate(data=WRONG)
        evaluate(out_of_scope=WRONG)  # 0
        bert_jax.compare(small / 'classifier', WRONG, small / 'labelled.jsonl')
        bert_jax.evaluate_index(WRONG, '.')
        evaluate_index(data=WRONG)
        prepare(tokenizer=WRONG)
        learn(input=WRONG)
        learn(output=WRONG)  # 8
        learn(extend=WRONG)  # 0
        bert_jax.mine_hard_negatives(WRONG, PAIRS, negatives=1)
        mine(rescore=WRONG)  # 0
        mine(output=WRONG)  # 0
        mine(cache=WRONG)  # 0 8
    """),
    (NAMES, """
        bert_jax.load(masked, head=WRONG)  # 7
        bert_jax.load(masked, head='classify', labels=WRONG)
        bert_jax.load(masked, head='classify', labels=['a', WRONG])  # 1
        bert_jax.load(masked, dtype=WRONG)
        adapted(small)[WRONG]
        adapted(small).add(WRONG, small / 'adapter')  # 1
        adapted(small).remove(WRONG)
        bert_jax.load(masked, attention=WRONG)
        bert_jax.Embedder.load(masked, pooling='mean', engine=WRONG)
        bert_jax.Embedder.load(masked, pooling=WRONG)
        embed.encode('w1', pooling=WRONG)  # 7
        embed.encode('w1', prompt_name=WRONG)  # 7
        embed.encode_query('w1', long_texts=WRONG)
        embed.encode_document('w1', prompt=WRONG)  # 1 7
        sparse.encode_query('w1', prompt_name=WRONG)  # 7
        sparse.encode_query('w1', long_texts=WRONG)
        sparse.encode('w1', prompt=WRONG)  # 1 7
        tokens.encode('w1', task=WRONG)
        tokens.encode_query('w1', prompt_name=WRONG)  # 7
        m3.encode_all('w1', prompt_name=WRONG)  # 7
        m3.encode_all('w1', prompt=WRONG)  # 1 7
        tokens.encode_document('w1', prompt=WRONG)  # 1 7
        embed.encode('w1', output_value=WRONG)
        embed.encode('w1', precision=WRONG)
        embed.encode('w1', device=WRONG)  # 7
        classify.classify('w1', long_texts=WRONG)
        classify.zero_shot('w1', ['w1'], hypothesis_template=WRONG)
        mlm.push_to_hub(WRONG)
        mlm.push_to_hub('me/bert', revision=WRONG)
        mlm.push_to_hub('me/bert', commit_message=WRONG)
        bert_jax.train(WRONG, workdir='run')
        probe(label_descriptions=WRONG)  # 3
        bert_jax.open_task(WRONG)
        build(small / 'labelled.jsonl', text=WRONG)
        evaluate(text=WRONG)
        evaluate(label_separator=WRONG)
        evaluate(split=WRONG)
        evaluate(long_texts=WRONG)
        prepare(language=WRONG)
        learn(layout=WRONG)
        learn(column=WRONG)
        learn(kind=WRONG)
        mine(text=WRONG)
    """),
    (FLAGS, FLAG_CALLS := """
        embed.encode(['w1'], normalize_embeddings=WRONG)
        embed.encode(['w1'], show_progress_bar=WRONG)  # 6
        sparse.encode(['w1'], show_progress_bar=WRONG)  # 6
        tokens.encode(['w1'], show_progress_bar=WRONG)  # 6
        m3.encode_all(['w1'], show_progress_bar=WRONG)  # 6
        m3.compute_score([('w1', 'w2')], show_progress_bar=WRONG)  # 6
        tokens.rank('w1', ['w2'], return_documents=WRONG)
        embed.encode(['w1'], convert_to_numpy=WRONG)
        classify.zero_shot('w1', ['w1'], multi_label=WRONG)
        rank.predict([('w1', 'w2')], show_progress_bar=WRONG)  # 6
        rank.rank('w1', ['w2'], return_documents=WRONG)
        answer.answer('w1', 'w2', allow_no_answer=WRONG)  # 6
        bert_jax.load(masked, tokenizer=WRONG)
        bert_jax.load(masked, batch_invariant=WRONG)
        bert_jax.follow('.', wait=WRONG)
        mlm.push_to_hub('me/bert', private=WRONG)
        Index.open('.', verify=WRONG)
        Index.open(indexed()).add(TWO, replace=WRONG)
        Index.open(indexed()).search('w1', explain=WRONG)
        bert_jax.open_vectors('.', dequantize=WRONG)
        evaluate(skip_bad=WRONG)
        prepare(strict=WRONG)
        learn(cased=WRONG)
        mine(skip_bad=WRONG)
        mine(scores=WRONG)
    """),
    (VECTORS, """
        embed.similarity(WRONG, np.ones((2, 32)))
        embed.similarity('w1', WRONG)
        sparse.similarity(WRONG, sparse.encode('w1'))
        sparse.decode(WRONG)
        sparse.intersection(sparse.encode('w1'), WRONG)
        sparse.sparsity(WRONG)
        tokens.similarity(WRONG, tokens.encode(['w1']))
        tokens.similarity(tokens.encode(['w1']), WRONG)
    """),
    (DOCUMENTS, """
        build(WRONG)
        Index.open(indexed()).add(WRONG)  # 12 13
    """),
    (TREES, """
        losses(opened_task(small), WRONG)
        opened_task(small).losses({}, WRONG)
        opened_task(small).save('model', WRONG)
    """),
    (CHOICES, """
        build(quantize=WRONG)
        build(approximate=WRONG)
        build(language=WRONG)
        Index.open(indexed()).search('w1', retrievers=WRONG)  # 2
    """),
    (WEIGHTS, """
        Index.open(indexed()).search('w1', weights=WRONG)
        classify.classify('w1', min_precision=WRONG)
    """),
    ((None,), """
        bert_jax.load(masked, head='classify', labels=['a', 'a'])
        bert_jax.Embedder.load(masked, pooling='mean').encode('w1', 'query')
        bert_jax.load(masked, tokenizer=False).encode('w1')
        bert_jax.train('classify', work_dir='run')
        bert_jax.train('classify', epocs=3)
        bert_jax.open_task('classify', workdir='run')
        bert_jax.compare('bm25', masked, small / 'labelled.jsonl')
        [build(), build()]
        learn(size=3)
        Index.open(indexed()).remove('c')
        answer.answer(['w1', 'w2'], ['w3'])
        mlm.fill_mask('w1')
        mlm.pseudo_log_likelihood('')
        classify.in_distribution_p_value('w1')
        classify.predict(['w1', ''])
        classify.classify([('', 'w1')])
        number.classify('w1')
        bert_jax.Classifier.load(paths['rank']).classify(('w1', 'w2'))
        rank.rank('w1', 'w2')
        rank.predict('w1')
        rank.predict(['w1', 'w2', 'w3'])
        plain.warm_up(4)
        tag.tag([('w1', 'w2')])
        tag.tag_words('w1 w2')
    """),
)  # fmt: skip
TWO, PAIRS = [("a", "w1 w2"), ("b", "w2 w3")], [("w1 w2", "w2 w1"), ("w3", "w3 w4")]


def cases() -> Iterator[tuple[str, Any, bool]]:
    """(call, value, whether the call can take the value)"""
    for values, calls in CALLS:
        for line in calls.strip().splitlines():
            call, _, right = line.strip().partition("  # ")
            for n, value in enumerate(values):
                yield call, value, str(n) in right.split()


@cache
def opened_task(small: Path) -> bert_jax.TrainingTask:
    data = {"train": small / "labelled.jsonl", "max_length": 32, "folds": 0}
    return bert_jax.open_task("classify", init=small / "masked", data=data, epochs=1, head_init="pretrained")


def adapted(small: Path) -> bert_jax.AdapterModels:
    return bert_jax.load(small / "masked", adapters={"mine": small / "adapter"})


def losses(task: bert_jax.TrainingTask, params: Any) -> dict:
    return task.losses(params, next(task.batches()))


def indexed() -> Path:
    return bert_jax.Index.build(TWO, "index").path


def judged() -> None:
    """Write TWO documents, a query and its judgement into the current folder."""
    for name, rows in (("corpus", TWO), ("queries", [("q", "w1")])):
        lines = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in rows]
        Path(f"{name}.jsonl").write_text("".join(lines))
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")


def evaluate_index(data: Any = ".", **options: Any) -> Any:
    judged()
    return bert_jax.evaluate_index(bert_jax.Index.open(indexed()), data, **options)


def changed(function: Callable, given: dict) -> Callable:
    """The function with the given arguments, of which a call names those that are others."""
    return lambda **changes: function(**given | changes)


@pytest.fixture
def names(small, models, tmp_path, monkeypatch) -> dict[str, Any]:
    """What the calls name."""
    monkeypatch.chdir(tmp_path)
    labelled = small / "labelled.jsonl"
    text = {"input": small / "text.txt", "output": "new"}
    return {
        **models, **globals(), "small": small, "masked": small / "masked", "Index": bert_jax.Index,
        "build": lambda documents=TWO, **given: bert_jax.Index.build(documents, "new", **given),
        "evaluate": changed(partial(bert_jax.evaluate, small / "classifier"), {"data": labelled}),
        "prepare": changed(bert_jax.prepare, {**text, "tokenizer": small / "vocabulary", "processes": 1}),
        "learn": changed(bert_jax.train_tokenizer, {**text, "size": 900}),
        "probe": changed(partial(bert_jax.finetune, small / "masked", [f"w{n}" for n in range(20)], ["a", "b"] * 10), {
            "method": "linear_probe", "data": {"max_length": 32, "folds": 0}, "report": False}),
        "mine": changed(partial(bert_jax.mine_hard_negatives, small / "masked"), {"pairs": PAIRS, "negatives": 1}),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("call", "value", "is_right"), draw_cases(cases(), 100))
def test_a_wrong_argument_is_one_line(names, call, value, is_right):
    def made() -> Any:
        result = eval(call, names, {"WRONG": value})
        return list(result) if isinstance(result, Iterator) else result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_right:
            made()
            return
        with pytest.raises(BertJaxError) as raised:
            made()
    message = str(raised.value)
    assert "\n" not in message and 0 < len(message) < LONGEST
    assert not Path("new").exists() or call.startswith("["), "what was refused leaves nothing"


def test_every_flag_is_tried():
    functions = [value for name in bert_jax.__all__ if inspect.isfunction(value := getattr(bert_jax, name))]
    of_index = [bert_jax.Index.open, bert_jax.Index.build, bert_jax.Index.search]
    flags = {
        parameter.name
        for function in (*functions, *of_index)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.annotation is bool
    }
    assert [flag for flag in flags if f"{flag}=WRONG" not in FLAG_CALLS] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_an_argument_that_there_is_not_is_named(models, name):
    with pytest.raises(TypeError, match="dtpye"):
        CLASSES[name].load(models["paths"][name], dtpye="float32")
