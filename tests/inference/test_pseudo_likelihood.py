"""Pseudo-log-likelihood beside torch, and masks that are filled together."""

import json

import numpy as np
import pytest

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.inference import masked_lm
from bert_jax.inference.load import load
from tests.support.made_up_language import ENTRIES, IDS, save_tokenizer, token_ids
from tests.support.optional_modules import torch
from tests.support.transformers_models import save_transformers_model

SIZES = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 80,
    "vocab_size": len(ENTRIES), "max_position_embeddings": 24,
}  # fmt: skip
TEXTS = ["w1 w2 w3", "w5y1y2 w7", "w9", "w1 w1 w2 w44 w300y4 w6 w7 w8"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """(torch's, the directory)"""
    path = tmp_path_factory.mktemp("model")
    theirs = save_transformers_model("BertForMaskedLM", path, seed=4, **SIZES)
    save_tokenizer(path)
    return theirs, path


def scored_by_torch(model, text: str) -> list[float]:
    ids = [2, *token_ids(text.split()), 3]
    logarithms = []
    for place in range(1, len(ids) - 1):
        masked = [4 if n == place else token for n, token in enumerate(ids)]
        with torch.no_grad():
            logits = model(torch.tensor([masked])).logits
        logarithms.append(logits[0, place].log_softmax(-1)[ids[place]].item())
    return logarithms


@pytest.mark.slow
def test_scores_equal_an_independent_computation(models, monkeypatch, capsys):
    theirs, path = models
    monkeypatch.setattr(masked_lm, "TOKENS_AT_ONCE", 40)  # parts that end within a text
    model = load(path)
    expected = [scored_by_torch(theirs, text) for text in TEXTS]
    for scored, values in zip(model.pseudo_log_likelihood(TEXTS), expected, strict=True):
        np.testing.assert_allclose(scored.tokens, values, rtol=1e-5)
        assert scored.score == pytest.approx(sum(values), rel=1e-5)
        assert scored.perplexity == pytest.approx(np.exp(-np.mean(values)), rel=1e-5)
    # A text of 30 tokens stands in two windows of 24; each token is scored once.
    assert len(model.pseudo_log_likelihood(" ".join(f"w{n}" for n in range(30))).tokens) == 30
    with pytest.raises(BertJaxError, match='"" has no token to score'):
        model.pseudo_log_likelihood(["w1", ""])
    assert main(["score", "--model", str(path), "--json", *TEXTS]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["score"] for line in lines] == [pytest.approx(sum(values), abs=1e-3) for values in expected]


def filled_by_torch(model, text: str, steps: int):
    """(tokens, the product of their probabilities)"""
    product, ids = 1.0, [2, *(4 if word == "[MASK]" else IDS[word] for word in text.split()), 3]
    for left in range(steps, 0, -1):
        places = [n for n, token in enumerate(ids) if token == 4]
        with torch.no_grad():
            best, tokens = model(torch.tensor([ids])).logits[0].softmax(-1).max(-1)
        for place in sorted(places, key=lambda place: -best[place])[: -(-len(places) // left)]:
            ids[place], product = tokens[place].item(), product * best[place].item()
    return [ENTRIES[token] for token in ids[1:-1]], product


@pytest.mark.slow
def test_masks_are_filled_together_the_most_confident_first(models, capsys):
    theirs, model = models[0], load(models[1])
    text = "w1 [MASK] [MASK] w4 [MASK] w9 [MASK] [MASK]"
    results = {}
    for steps in (1, 2, 3, 5, 8):
        filled = model.fill_mask(text, steps=steps)
        entries, product = filled_by_torch(theirs, text, steps)
        tokens = [token for token, word in zip(entries, text.split(), strict=True) if word == "[MASK]"]
        assert filled.token.split() == tokens
        assert filled.text.replace(" ", "") == "".join(entries).replace("##", "")
        assert filled.score == pytest.approx(product, rel=1e-4)
        results[steps] = filled.token
    assert results[1] != results[5], "later fillings read earlier ones"
    assert results[5] == results[8]
    together = model.fill_mask([text, "w1 [MASK] w3"], steps=2)
    assert together[0].token == results[2] and len(together[1].token.split()) == 1
    assert main(["fill-mask", "--model", str(models[1]), "--steps", "2", "--json", text]) == 0
    assert json.loads(capsys.readouterr().out)["token"] == results[2]
