"""Heads that transformers lacks, opened by it with the modelling file of their directory."""

import json

import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.hub.published_form import MODELING_FILE, modeling_classes
from bert_jax.inference.load import load
from bert_jax.models.heads import HEADS
from tests.support.cases import long_except
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.model_outputs import compute_outputs
from tests.support.optional_modules import torch, transformers
from tests.support.seeded_arrays import seeded_tensors

pytestmark = pytest.mark.slow
LIKE_BERT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 64,
}  # fmt: skip
SEP = 3
PAIRS = [([2, 7, 8, SEP], [2, 9, 10, 11, SEP]), ([2, 12, 13, SEP], [2, 14, 15, SEP])]
TWO_SEPARATORS = ("camembert", "mpnet", "roberta", "xlm_roberta")  # between the texts of a pair


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """transformers copies modelling files before it runs them."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))


def open_there(directory, **options):
    layout = ModelDirectory.open(directory).layout
    (name,) = modeling_classes(layout)
    return getattr(transformers, name).from_pretrained(directory, **options).eval()


def our_logits(layout, params, rows) -> np.ndarray:
    """The logits of rows, each of which is the ids of one text, or of both texts of a pair."""
    logits = []
    for texts in rows:
        ids = np.concatenate(texts)
        lengths = np.array([len(text) for text in texts])
        batch = {
            "input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1,
            "positions": np.concatenate([np.arange(length) for length in lengths]),
            "segment_ids": np.repeat(np.arange(1, len(texts) + 1), lengths),
            "cls_positions": np.cumsum(lengths) - lengths,
        }  # fmt: skip
        if len(texts) == 1:
            batch = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
        given = {name: np.array([values], np.int32) for name, values in batch.items()}
        logits.append(compute_outputs(layout, given, params)[layout.heads[-1]][0])
    return np.stack(logits)


def their_logits(model, rows, padding: int) -> np.ndarray:
    rows = [np.array(row) for row in rows]
    longest = max(map(len, rows))
    ids = np.stack([np.pad(row, (0, longest - len(row)), constant_values=padding) for row in rows])
    mask = np.stack([np.arange(longest) < len(row) for row in rows]).astype(np.int64)
    with torch.no_grad():
        output = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask))
    if "logits" in output:
        return output.logits.numpy()
    return torch.stack([output.start_logits, output.end_logits], -1).numpy()


CASES = [
    (name, "compare_cls" if name in TWO_SEPARATORS else "classify_mean")
    for name in sorted(FAMILIES.names())
    if FAMILIES[name].encoder_in_transformers
]
CASES += [
    ("bert", "classify_cls"),
    ("bert", "compare_mean"),
    ("nomic_bert", "answer"),
    ("eurobert", "answer"),
]
# Both numbers of separators, both ways to pool, narrow embeddings, near layers and relative positions.
ORDINARY = [("electra", "classify_mean"), ("modernbert", "classify_mean"), ("deberta_v2", "classify_mean"),
            ("roberta", "compare_cls"), *CASES[-4:-1]]  # fmt: skip


@pytest.mark.parametrize(("name", "head"), long_except(CASES, ORDINARY))
def test_logits_are_the_same_in_transformers_and_in_what_it_saves(name, head, tmp_path):
    labels = ("a", "b", "c") if HEADS[head].labels else ()
    layout = family_layout(name, FAMILY_CONFIGS.get(name, LIKE_BERT) | {"vocab_size": 61}, (head,), labels)
    params = unflatten_dict(seeded_tensors(layout.shapes(), 3), sep="/")
    hub.save_model(tmp_path / "ours", layout, params)
    model = open_there(tmp_path / "ours", trust_remote_code=True)

    rows = PAIRS if HEADS[head].compares else [([2, 7, 8, 9, SEP],), ([2, 10, 11, 12, SEP],)]
    ours = our_logits(layout, params, rows)
    between = [SEP] * (name in TWO_SEPARATORS)
    joined = [first + [id for text in others for id in between + text[1:]] for first, *others in rows]
    np.testing.assert_allclose(their_logits(model, joined, model.config.pad_token_id or 0), ours, atol=1e-5)

    model.save_pretrained(tmp_path / "theirs")
    again = ModelDirectory.open(tmp_path / "theirs")
    assert again.layout.heads == (head,) and again.layout.labels == labels
    np.testing.assert_allclose(our_logits(again.layout, again.read_params(), rows), ours, atol=1e-6)


@pytest.mark.parametrize("head", ["classify_mean", "compare_mean"])
def test_a_text_and_a_pair_have_the_same_probabilities_in_transformers(head, tmp_path, encoder_path):
    load(encoder_path, head=head, labels=("bad", "good"), seed=3).save(tmp_path / "ours")
    model, tokenizer = load(tmp_path / "ours"), transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    there = open_there(tmp_path / "ours", trust_remote_code=True)
    texts = ["w1 w2", "w3 w4 w5 w6"]
    given = list(zip(texts, texts[::-1], strict=True)) if HEADS[head].compares else texts
    columns = list(map(list, zip(*given, strict=True))) if HEADS[head].compares else [texts]
    inputs = tokenizer(*columns, padding=True, return_tensors="pt")
    answer = there(**inputs, labels=torch.tensor([0, 1]))
    np.testing.assert_allclose(
        answer.logits.softmax(-1).detach().numpy(), model.predict_proba(given), atol=1e-5
    )
    answer.loss.backward()
    if HEADS[head].compares:
        with pytest.raises(ValueError, match="this model takes pairs"):
            there(**tokenizer(texts, padding=True, return_tensors="pt"))


def test_without_its_code_transformers_says_that_the_classifier_is_new(tmp_path, encoder_path):
    load(encoder_path, head="classify_mean", labels=("bad", "good")).save(tmp_path / "ours")
    _, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert {"classifier.weight", "classifier.bias"} <= set(info["missing_keys"])
    assert "mean_direction_classifier.weight" in info["unexpected_keys"]


def test_only_a_head_that_transformers_lacks_has_a_modelling_file(tmp_path, encoder_path):
    load(encoder_path, head="classify_mean", labels=("bad", "good")).save(tmp_path / "other")
    config = tmp_path / "other/config.json"
    others = json.loads(config.read_text()) | {"auto_map": {"AutoModel": "modeling_theirs.Theirs"}}
    (tmp_path / "other/hashes.json").unlink()
    config.write_text(json.dumps(others))
    load(tmp_path / "other").save(tmp_path / "mean")
    load(tmp_path / "mean", head="classify", labels=("bad", "good")).save(tmp_path / "native")
    for name, own in (("mean", True), ("native", False)):
        assert (tmp_path / name / MODELING_FILE).exists() == own
        named = json.loads((tmp_path / name / "config.json").read_text()).get("auto_map", {})
        assert [*named] == ["AutoModelForSequenceClassification"] * own
