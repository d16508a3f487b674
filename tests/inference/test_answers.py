"""Answers of a loaded model: each against the bare module, whatever the form and length of the texts."""

import functools
import itertools
import warnings

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.embedder import Embedder
from tests.support.small_models import SMALL_CONFIG, SMALL_VOCABULARY, write_model

TAGS = ("O", "B-X", "I-X", "B-Y", "I-Y")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Opens a small model with the head asked for; "embed" is an embedder."""
    opened = {}

    def open_with(head, labels=()):
        if head not in opened:
            path = tmp_path_factory.mktemp("model")
            is_embedder = head == "embed"
            write_model(path, heads=() if is_embedder or not head else (head,), labels=labels)
            opened[head] = Embedder.load(path, pooling="mean") if is_embedder else bert_jax.load(path)
        return opened[head]

    return open_with


@functools.cache
def compiled(module):
    return jax.jit(lambda params, batch: module.apply({"params": params}, batch))


def bare(model, encoding, output):
    """The output of the module for one row, as long as the model so that it compiles once."""
    length, longest = len(encoding.input_ids), SMALL_CONFIG.max_position_embeddings
    rows = {name: getattr(encoding, name) for name in ("input_ids", "token_type_ids")}
    rows["attention_mask"] = [1] * length
    batch = {name: np.int32([row + [0] * (longest - length)]) for name, row in rows.items()}
    found = np.asarray(compiled(model.module)(model.params, batch)[output][0])
    return found[:length] if found.ndim == 2 else found


@pytest.mark.slow
def test_embed(model):
    model = model("embed")
    texts = ["the cat sat", "", "on", "cats on the mat"]
    vectors = model.encode(texts)
    assert vectors.shape == (4, 8)
    for text, vector in zip(texts, vectors, strict=True):
        expected = bare(model, model.tokenizer.encode([text])[0], "hidden").mean(0)
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-5)
    np.testing.assert_allclose(model.encode((texts[0], texts[3])), vectors[[0, 3]], atol=1e-6)
    assert model.encode([(texts[0], texts[3])]).shape == (1, 8), "a pair"
    assert model.encode(()).shape == (0, 8)


@pytest.mark.slow
def test_a_stream_is_read_no_further_than_needed(model):
    read = itertools.count()
    endless = (f"the cat {'sat ' * (i % 3)}" for i in read)
    vectors = model("embed").encode(endless)
    for _ in range(3):
        next(vectors)
    assert next(read) <= 513  # a chunk; an endless stream would never return otherwise


@pytest.mark.slow
def test_long_texts_are_cut_aloud_or_averaged(model):
    model = model("embed")
    long = "the cat sat on the mat . " * 5
    with pytest.warns(UserWarning, match=r"1 of 2 texts \(number 2\) is longer .* by 21") as caught:
        cut = model.encode(["cat", long])
    assert caught[0].filename == __file__, "it points at the caller"
    expected = bare(model, model.tokenizer.encode([long], max_length=16)[0], "hidden").mean(0)
    np.testing.assert_allclose(cut[1], expected / np.linalg.norm(expected), atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = model.encode(["cat", long], long_texts="windows")
    (windows,) = model.tokenizer.windows([long], max_length=16, overlap=4)
    mean = np.concatenate([bare(model, window, "hidden") for window in windows]).mean(0)
    np.testing.assert_allclose(whole[1], mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_allclose(whole[0], cut[0], atol=1e-5)
    with pytest.raises(BertJaxError, match='must be "truncate" or "windows", not "window"$'):
        model.encode("cat", long_texts="window")


@pytest.mark.slow
def test_fill_mask(model):
    model = model("mlm")
    text = "the [MASK] sat"
    likely = np.asarray(jax.nn.softmax(bare(model, model.tokenizer.encode([text])[0], "mlm")[2]))
    filled = model.fill_mask(text, top_k=3)
    assert [f.token for f in filled] == [SMALL_VOCABULARY[i] for i in np.argsort(-likely)[:3]]
    np.testing.assert_allclose([f.score for f in filled], np.sort(likely)[::-1][:3], atol=1e-6)
    for f in model.fill_mask(text, top_k=len(SMALL_VOCABULARY)):
        assert f.text == ("thes sat" if f.token == "##s" else f"the {f.token} sat")
    many = model.fill_mask("[MASK] " * 11, top_k=1)
    likely = np.asarray(jax.nn.softmax(bare(model, model.tokenizer.encode(["[MASK] " * 11])[0], "mlm")))
    np.testing.assert_allclose([f[0].score for f in many], likely[1:12].max(-1), atol=1e-6)


@pytest.mark.slow
def test_a_mask_far_into_a_long_text_is_read_where_it_stands(model):
    model = model("mlm")
    before, after = "the cat sat on the mat . " * 6, " the mat . " * 6
    filled = model.fill_mask(before + "[MASK]" + after, top_k=1)[0]
    assert filled.text == before + filled.token + after
    # Of the windows that hold it, the one that shows most on both sides of it.
    (windows,) = model.tokenizer.windows([before + "[MASK]" + after], max_length=16, overlap=7)
    mask = model.tokenizer.special.mask
    window = max(
        (w for w in windows if mask in w.input_ids),
        key=lambda w: min(w.input_ids.index(mask), 16 - w.input_ids.index(mask)),
    )
    assert 4 <= window.input_ids.index(mask) <= 11
    likely = jax.nn.softmax(bare(model, window, "mlm")[window.input_ids.index(mask)])
    np.testing.assert_allclose(filled.score, likely.max(), atol=1e-6)


@pytest.mark.slow
def test_classify(model):
    model = model("classify", ("no", "yes", "maybe"))
    texts = ["the cat sat", ("the cat", "the mat ."), "mats", "cats"]
    found = model.classify(texts)
    probabilities = model.predict_proba(texts)
    assert model.predict_proba([]).shape == (0, 3)
    assert model.predict(texts) == [label.label for label in found]
    for text, label, scores in zip(texts, found, probabilities, strict=True):
        likely = np.asarray(jax.nn.softmax(bare(model, model.tokenizer.encode([text])[0], "classify")))
        np.testing.assert_allclose(scores, likely, atol=1e-5)
        assert label.label == model.labels[scores.argmax()] and label.score == scores.max()
    long = "the cat sat on the mat . " * 5
    (windows,) = model.tokenizer.windows([long], max_length=16, overlap=4)
    logits = np.mean([bare(model, window, "classify") for window in windows], axis=0)
    likely = model.predict_proba(long, long_texts="windows")
    np.testing.assert_allclose(likely, jax.nn.softmax(logits), atol=1e-5)


@pytest.mark.slow
def test_tag_finds_spans_where_the_words_are(model):
    model = model("tag", TAGS)
    # The third one is longer than the model; every one of its words has a label all the same.
    for text in ("the cat sat", "  cats on\tthe mat.", "the cats sat on the mat. " * 6, ""):
        spans = model.tag(text)
        assert spans == sorted(spans, key=lambda span: span.start)
        assert all(
            span.text == text[span.start : span.end] and span.text.strip() == span.text for span in spans
        )
        if text and len(text) < 30:
            (encoding,) = model.tokenizer.encode([text])
            best = bare(model, encoding, "tag").argmax(-1)
            labelled = {
                encoding.offsets[i][0]: TAGS[best[i]]
                for i in encoding.spans[0]
                if TAGS[best[i]] != "O" and model.tokenizer.tokens([encoding.input_ids[i]]) != ["##s"]
            }
            starts = {start for start, label in labelled.items() if label[0] == "B"}
            assert starts <= {span.start for span in spans} <= set(labelled)
    (far,) = model.tokenizer.windows(["the cats sat on the mat. " * 6], max_length=16, overlap=4)
    assert len(far) > 3 and model.tag("the cats sat on the mat. " * 6)[-1].end > 100


@pytest.mark.slow
def test_tag_words_gives_each_word_the_label_of_its_first_token(model):
    model = model("tag", TAGS)
    lists = [["the", "cats", "sat"], ["\x00", "cats", ".", "\x00"], [], ["on"]]
    found = model.tag_words(lists)
    for words, tags in zip(lists, found, strict=True):
        (encoding,) = model.tokenizer.encode([" ".join(words)])
        best = bare(model, encoding, "tag").argmax(-1)
        others = (2, 3, SMALL_VOCABULARY.index("##s"))
        first = [i for i, token in enumerate(encoding.input_ids) if token not in others]
        seen = iter(TAGS[best[i]] for i in first)
        assert tags == ["O" if word == "\x00" else next(seen) for word in words]
    with pytest.raises(BertJaxError, match="not a list of words"):
        model.tag_words("the cat")


def test_joined_labels():
    from bert_jax.predictions.text_spans import join_spans

    names = ("O", "B-X", "I-X", "Y")
    text = "a b c d e f g h"
    labels = [1, 2, 0, 2, 2, 1, 3, 3]
    places, tags = [(2 * i, 2 * i + 1) for i in range(8)], [names[label] for label in labels]
    spans = [(span.label, span.text) for span in join_spans(text, places, tags, [1.0] * 8)]
    assert spans == [("X", "a b"), ("X", "d e"), ("X", "f"), ("Y", "g h")]


@pytest.mark.slow
def test_answer(model):
    model = model("answer")
    question = "on the mat ?"
    for text in ("the cat sat on the mat .", "the cat sat on the mat . cats " * 5):
        best = model.answer(question, text)
        assert best.text == text[best.start : best.end] and best.text
        (windows,) = model.tokenizer.windows([(question, text)], max_length=16, overlap=4)
        starts, ends, spans = [], [], []
        for window in windows:
            logits = bare(model, window, "answer")[list(window.spans[1])]
            for i, j in itertools.combinations_with_replacement(range(len(logits)), 2):
                span = window.offsets[window.spans[1][i]][0], window.offsets[window.spans[1][j]][1]
                spans.append((logits[i, 0] + logits[j, 1], span))
            starts.append(logits[:, 0])
            ends.append(logits[:, 1])
        score, span = max(spans)
        assert (best.start, best.end) == span
        total = np.exp(np.concatenate(starts)).sum() * np.exp(np.concatenate(ends)).sum()
        np.testing.assert_allclose(best.score, np.exp(score) / total, rtol=1e-4)
    short = model.answer(question, text, longest=1)
    assert len(model.tokenizer.ids([short.text])[0]) == 1


@pytest.mark.slow
def test_answers_side_by_side(model):
    model = model("answer")
    questions, texts = ["the cat ?", "the mat ?"], ["the cat sat", "on the mat"]
    both = model.answer(questions, texts)
    alone = [model.answer(q, t) for q, t in zip(questions, texts, strict=True)]
    assert [(found.text, found.start) for found in both] == [(found.text, found.start) for found in alone]
    with pytest.raises(BertJaxError, match="2 questions and 1 texts"):
        model.answer(questions, texts[:1])
    with pytest.raises(BertJaxError, match="but neighbouring windows must share"):
        model.answer("the cat sat on the mat . on the mat", "the cat")


@pytest.mark.slow
def test_an_answer_may_be_missing(model, monkeypatch):
    model = model("answer")
    for text in ("the cat", "mat", "on . cats", "sat sat"):
        found = model.answer("the ?", text, allow_no_answer=True)
        (window,) = model.tokenizer.windows([("the ?", text)], max_length=16, overlap=4)[0]
        logits = bare(model, window, "answer")
        inside = logits[list(window.spans[1])]
        best = max(inside[i, 0] + inside[j, 1] for i in range(len(inside)) for j in range(i, len(inside)))
        assert (found is None) == (logits[0].sum() > best)
    assert model.answer("the ?", "").text == "" and model.answer("the ?", "", allow_no_answer=True) is None
    monkeypatch.setitem(model.layout.hf_config, "allow_no_answer", True)
    assert model.answer("the ?", "") is None, "by default as the model was trained"
