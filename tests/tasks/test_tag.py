"""A tagger learns. Its logits are those of transformers in tests/models/test_reference.py."""

import random

import pytest

from bert_jax.inference.load import load
from tests.support.finetuning_runs import finetune
from tests.support.texts import random_texts


@pytest.mark.slow
def test_a_tagger_learns(tmp_path, encoder_path):
    rng = random.Random(6)
    lines = []
    for text in random_texts(160, (4, 30)):
        for word in text.split():
            lines.append(f"{word} O")
            if rng.random() < 0.2:
                lines += ["w5 B-PER", "w6 I-PER"]
        lines.append("")
    (tmp_path / "train.conll").write_text("\n".join(lines))
    settings = {"data.train": tmp_path / "train.conll", "data.overlap": 8}
    found = finetune("tag", encoder_path, tmp_path / "run", **settings)
    ours = load(tmp_path / "run/model")
    assert max(line["f1"] for line in found) > 0.95
    assert ours.kind.strict, "no I- began a span"
    assert [span.label for span in ours.tag("w9 w5 w6 w7")] == ["PER"]
