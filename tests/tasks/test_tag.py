"""A tagger learns, and transformers gives the same tags."""

import random

import numpy as np
import pytest

from bert_jax.inference.load import load
from tests.support.finetuning_runs import finetune
from tests.support.logits import head_outputs
from tests.support.texts import random_texts


@pytest.fixture(scope="module")
def tagged(tmp_path_factory, encoder_path):
    root = tmp_path_factory.mktemp("tag")
    rng = random.Random(6)
    lines = []
    for text in random_texts(160, (4, 30)):
        for word in text.split():
            lines.append(f"{word} O")
            if rng.random() < 0.2:
                lines += ["w5 B-PER", "w6 I-PER"]
        lines.append("")
    (root / "train.conll").write_text("\n".join(lines))
    found = finetune(
        "tag", encoder_path, root / "run", **{"data.train": root / "train.conll", "data.overlap": 8}
    )
    return root / "run" / "model", found


@pytest.mark.slow
def test_a_tagger_learns(tagged):
    path, found = tagged
    ours = load(path)
    assert max(line["f1"] for line in found) > 0.95
    assert ours.kind.strict, "no I- began a span"
    assert [span.label for span in ours.tag("w9 w5 w6 w7")] == ["PER"]


@pytest.mark.slow
def test_transformers_gives_the_same_tags(tagged):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, _ = tagged
    ours = load(path)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(path).eval()
    (encoding,) = ours.tokenize(["w9 w5 w6 w7"])
    with torch.no_grad():
        logits = theirs(torch.tensor([encoding.input_ids])).logits[0].numpy()
    np.testing.assert_allclose(head_outputs(ours, encoding)["tag"][0], logits, atol=1e-5)
