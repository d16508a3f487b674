"""A masked LM whose bias is lowered predicts the same, and has as many active entries as asked for."""

import pytest

import bert_jax
from tests.bench.lower_bias import main
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts


@pytest.mark.slow
def test_a_constant_less_leaves_few_entries_and_the_same_predictions(encoder_path, tmp_path):
    texts = random_texts(20, (8, 20), 3)
    pairs = write_jsonl(
        tmp_path / "pairs.jsonl", [{"question": "w1", "paragraph": text} for text in texts * 2]
    )
    main(str(encoder_path), str(pairs), str(tmp_path / "start"), "100")
    before, after = (
        bert_jax.SparseEmbedder.load(path).encode(texts) for path in (encoder_path, tmp_path / "start")
    )
    assert before.nnz > 500 * len(texts)
    assert after.nnz == pytest.approx(100 * len(texts), rel=1e-3)
    ours, theirs = (
        bert_jax.MaskedLM.load(path).pseudo_log_likelihood(texts[0]).score
        for path in (encoder_path, tmp_path / "start")
    )
    assert ours == pytest.approx(theirs, rel=1e-4)
