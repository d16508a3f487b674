"""Adapters beside PEFT: its files here and ours there, and what is wrong with files."""

import json
import re
import shutil
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.adapter import CONFIG, WEIGHTS
from bert_jax.hub.model_directory import ModelDirectory, model_fingerprint
from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.inference.load import load
from bert_jax.training.adapters import join_params, trained_adapter
from tests.support.adapters import random_adapter, save_adapter, write_adapter
from tests.support.cases import long_except
from tests.support.families import FAMILY_CONFIGS
from tests.support.gradients import assert_gradients_equal
from tests.support.model_outputs import compute_outputs
from tests.support.optional_modules import peft, torch, transformers
from tests.support.seeded_arrays import seeded_batch, seeded_tensors
from tests.support.small_models import write_model
from tests.support.transformers_models import assert_close, save_transformers_model

WORDS = 60
BERT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 64,
}  # fmt: skip
V3 = FAMILY_CONFIGS["deberta-v2"] | {"conv_kernel_size": 0, "type_vocab_size": 0}
FAMILIES = {  # class of transformers, config
    "bert": ("Bert", BERT),
    "roberta": ("Roberta", BERT | {"type_vocab_size": 1, "pad_token_id": 1}),
    "modernbert": ("ModernBert", FAMILY_CONFIGS["modernbert"] | {"pad_token_id": 0}),
    "deberta-v2": ("DebertaV2", V3),
    "deberta": ("Deberta", FAMILY_CONFIGS["deberta"] | {"type_vocab_size": 0}),
    "distilbert": ("DistilBert", FAMILY_CONFIGS["distilbert"]),
    "electra": ("Electra", FAMILY_CONFIGS["electra"]),
    "albert": ("Albert", FAMILY_CONFIGS["albert"]),
    "mpnet": ("MPNet", FAMILY_CONFIGS["mpnet"]),
}
HEADS = {  # of ours -> (class of transformers, type of task of PEFT, its outputs)
    "classify": ("ForSequenceClassification", "SEQ_CLS", ("logits",)),
    "tag": ("ForTokenClassification", "TOKEN_CLS", ("logits",)),
    "answer": ("ForQuestionAnswering", "QUESTION_ANS", ("start_logits", "end_logits")),
    "mlm": ("ForMaskedLM", None, ("logits",)),
}
EVERYWHERE = {"target_modules": "all-linear", "exclude_modules": r".*(classifier|qa_outputs|score).*"}
KINDS = {  # of adapters: the head, settings of PEFT
    "plain": ("tag", {}),
    "rslora": ("answer", {"use_rslora": True}),
    "dora": ("classify", {"use_dora": True}),
    "patterns": ("tag", {"rank_pattern": {r".*\.0\..*": 2}, "alpha_pattern": {r".*\.1\..*": 5}, "bias": "lora_only"}),
    "biases": ("mlm", {"bias": "all"}),
}  # fmt: skip


def pytorch_model(family: str, head: str, directory, **labels):
    """A model with seeded weights, saved."""
    name, config = FAMILIES[family]
    return save_transformers_model(
        name + HEADS[head][0], directory, **config | {"vocab_size": WORDS} | labels
    )


def random_batch(family: str) -> dict:
    pad = FAMILIES[family][1].get("pad_token_id", 1 if family == "mpnet" else 0)
    batch = seeded_batch(3, 9, WORDS, 1, targets=2, seed=1)
    words = np.maximum(batch["input_ids"], 5)
    mask = batch["attention_mask"]
    return {
        "input_ids": np.where(mask > 0, words, pad).astype(np.int32),
        "attention_mask": mask.astype(np.int32),
        "token_type_ids": np.zeros_like(mask, np.int32),
    }


def torch_outputs(model, head: str, batch: dict):
    given = {name: torch.from_numpy(np.int64(batch[name])) for name in ("input_ids", "attention_mask")}
    answer = model(**given)
    parts = [answer[name] for name in HEADS[head][2]]
    return torch.stack(parts, -1) if len(parts) > 1 else parts[0]


def assert_same_outputs(head: str, ours, theirs, batch: dict) -> None:
    assert_close(ours[..., : theirs.shape[-1]], theirs, batch["attention_mask"] if ours.ndim == 3 else None)


def fill_randomly(model) -> None:
    """Give the trained parameters seeded values; those of new adapters would change nothing."""
    trained = {name: tuple(p.shape) for name, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for name, value in seeded_tensors(trained, 4).items():
            model.get_parameter(name).copy_(torch.from_numpy(value))


# CI tries each kind and each head on BERT, and families whose names or layers differ with one of them.
OPENED_IN_CI = [
    *(("bert", kind) for kind in KINDS),
    ("roberta", "plain"),
    ("modernbert", "patterns"),
    ("deberta-v2", "dora"),
]
OPENED = long_except(product(FAMILIES, KINDS), OPENED_IN_CI)
LEARNT_IN_CI = [
    *(("bert", head) for head in HEADS), ("bert", "dora"), ("roberta", "tag"), ("modernbert", "dora"),
    ("deberta-v2", "answer"), ("deberta", "mlm"),  # whose layers have outputs in another order than ours
]  # fmt: skip
LEARNT = long_except(product(FAMILIES, [*HEADS, "dora"]), LEARNT_IN_CI)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind"), OPENED)
def test_adapters_of_peft_open_here(family, kind, tmp_path):
    head, settings = KINDS[kind]
    if family == "modernbert" and head == "answer":
        head = (
            "tag"  # PEFT does not save the head of an answer model of ModernBERT, which is called otherwise
        )
    labels = {"num_labels": 3} if head in ("classify", "tag") else {}
    base = pytorch_model(family, head, tmp_path / "base", **labels)
    settings = EVERYWHERE | {"r": 4, "lora_alpha": 6, "task_type": HEADS[head][1]} | settings
    model = peft.get_peft_model(base, peft.LoraConfig(**settings)).eval()
    fill_randomly(model)
    model.save_pretrained(tmp_path / "adapter")
    edit_json(tmp_path / "adapter" / CONFIG, base_model_name_or_path=str(tmp_path / "base"))
    ours, batch = load(tmp_path / "adapter", tokenizer=False), random_batch(family)
    outputs = compute_outputs(ours, batch)
    assert_same_outputs(head, outputs[head], torch_outputs(model, head, batch), batch)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "head"), LEARNT)
def test_our_adapters_compute_learn_and_open_as_in_peft(family, head, tmp_path):
    use_dora, head = head == "dora", "classify" if head == "dora" else head
    before = "classify" if head == "classify" else "mlm"  # the adapter brings its own head
    pytorch_model(family, before, tmp_path / "base", num_labels=2)
    labels = ("x", "y", "z") if head in ("classify", "tag") else ()
    task, config, trained, frozen = random_adapter(tmp_path / "base", head, labels, rank=4, use_dora=use_dora)
    directory = save_adapter(tmp_path / "adapter", task, config, trained, frozen)
    batch = random_batch(family)

    def compute(trained):
        params = join_params(task, config.adapter, trained, frozen)
        return task.layout.module.apply({"params": params}, batch)[head]

    weights = np.random.RandomState(6).standard_normal(jax.eval_shape(compute, trained).shape)
    if weights.ndim == 3:
        weights *= batch["attention_mask"][..., None]
    weights[..., WORDS:] = 0

    def weigh(trained):
        outputs = compute(trained)
        return (jnp.where(weights, outputs, 0) * weights).sum(), outputs

    gradients, outputs = jax.device_get(jax.jit(jax.grad(weigh, has_aux=True))(trained))
    # Merged, as it is opened.
    ours = load(directory, tokenizer=False)
    assert ours.labels == labels
    named = {"num_labels": 3} if labels else {}
    name = FAMILIES[family][0] + HEADS[head][0]
    plain = getattr(transformers, name).from_pretrained(
        tmp_path / "base", ignore_mismatched_sizes=True, **named
    )
    theirs = peft.PeftModel.from_pretrained(plain, directory, is_trainable=True).eval()
    expected = torch_outputs(theirs, head, batch)
    assert_same_outputs(head, outputs, expected, batch)
    assert_same_outputs(head, compute_outputs(ours, batch)[head], expected, batch)
    # The gradients, in the form of files.
    (expected * torch.from_numpy(np.float32(weights[..., : expected.shape[-1]]))).sum().backward()
    saved = trained_adapter(task, config, gradients, frozen)
    own = saved.to_tensors(task.layout, to_hf_tensors(task.layout, frozen | gradients))
    theirs = {
        re.sub(r"(?<=vector)\.default\.weight|\.default|\.modules_to_save", "", n): p.grad.numpy()
        for n, p in theirs.named_parameters()
        if p.requires_grad and p.grad is not None
    }
    assert set(theirs) <= set(own) and len(theirs) > 10
    assert_gradients_equal({name: own[name] for name in theirs}, theirs, 1e-4)


def edit_json(path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def adapter(tmp_path):
    """An adapter with two labels, on a small BERT."""
    write_model(tmp_path / "base")
    return write_adapter(tmp_path / "adapter", tmp_path / "base", "classify", ("no", "yes"), rank=2)


@pytest.mark.slow
def test_an_adapter_opens_as_the_model_that_was_trained(adapter):
    model = load(adapter)
    assert model.labels == ("no", "yes") and model.layout.heads == ("classify",)
    assert model.tokenizer.size == 12, "the base's"
    assert not (adapter / "model.safetensors").exists()
    model.save(adapter.parent / "whole")
    whole = load(adapter.parent / "whole")
    assert whole.predict_proba("the cat").tolist() == model.predict_proba("the cat").tolist()
    assert model_fingerprint(adapter) != model_fingerprint(adapter.parent / "whole")
    # A fingerprint is that of all numbers that are computed with.
    before = model_fingerprint(adapter)
    flip_last_byte(adapter.parent / "base" / "model.safetensors")
    assert model_fingerprint(adapter) != before


def test_an_adapter_may_be_put_on_a_base_that_has_moved(adapter):
    expected = load(adapter).predict_proba("the cat").tolist()
    shutil.move(adapter.parent / "base", adapter.parent / "moved")
    with pytest.raises(BertJaxError, match="is an adapter, whose base model does not open: "):
        load(adapter)
    model = load(ModelDirectory.open(adapter, base=adapter.parent / "moved"))
    assert model.predict_proba("the cat").tolist() == expected


def test_without_a_config_of_its_own_an_adapter_has_numbered_labels(adapter):
    (adapter / "config.json").unlink()
    assert load(adapter).labels == ("LABEL_0", "LABEL_1")


def flip_last_byte(path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def edit_weights(path, change) -> None:
    tensors = load_file(path / WEIGHTS)
    change(tensors)
    save_file(tensors, path / WEIGHTS, {"format": "pt"})


EMBEDDINGS = "base_model.model.bert.embeddings.word_embeddings.lora_"
NAME = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_"
WRONG = {
    "another kind": (lambda a: edit_json(a / CONFIG, peft_type="IA3"), 'adapters of type "IA3" are not supported'),
    "another arithmetic": (lambda a: edit_json(a / CONFIG, use_qalora=True), "use_qalora is not supported"),
    "another start": (lambda a: edit_json(a / CONFIG, init_lora_weights="pissa"), "'pissa' changes the base"),
    "no base": (lambda a: edit_json(a / CONFIG, base_model_name_or_path=None), "names no base model"),
    "itself as base": (lambda a: edit_json(a / CONFIG, base_model_name_or_path=str(a)), "is itself its base"),
    "not JSON": (lambda a: (a / CONFIG).write_text("{"), "is not valid JSON"),
    "a rank that is no number": (lambda a: edit_json(a / CONFIG, r="x"), '"r" is a text'),
    "another rank": (lambda a: edit_json(a / CONFIG, r=3), "has rank 2 in adapter_model.safetensors and 3 in"),
    "no pattern": (lambda a: edit_json(a / CONFIG, rank_pattern={"(": 2}), "is not a regular expression"),
    "embeddings by DoRA": (
        lambda a: edit_weights(a, lambda t: t.update({EMBEDDINGS + name: np.zeros(shape, "f4") for name, shape in {
            "embedding_A": (2, 12), "embedding_B": (8, 2), "magnitude_vector": (8,)}.items()})),
        "use_dora on embeddings is not supported"),
    "no weights": (lambda a: (a / WEIGHTS).unlink(), "has adapter_config.json but no adapter_model.safetensors"),
    "cut short": (lambda a: (a / WEIGHTS).write_bytes(b"12345678901"), "is cut short"),
    "half of a product": (lambda a: edit_weights(a, lambda t: t.pop(NAME + "B.weight")), "of shape"),
    "another size": (
        lambda a: edit_weights(a, lambda t: t.update({NAME + "A.weight": np.zeros((2, 9), np.float32)})), "[8, 8]"),
    "a layer too many": (
        lambda a: edit_weights(a, lambda t: t.update({NAME.replace("0", "7") + "A.weight": np.zeros((2, 8), "f4")})),
        "which its base model lacks"),
    "not finite": (lambda a: edit_weights(a, lambda t: t[NAME + "B.weight"].fill(np.nan)), "not finite"),
    "no head": (
        lambda a: edit_weights(a, lambda t: t.pop("base_model.model.classifier.weight")),
        "missing: classifier.weight"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_with_an_adapter_is_said_in_one_line(fault, adapter):
    damage, message = WRONG[fault]
    damage(adapter)
    with pytest.raises(BertJaxError) as error:
        load(adapter)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_an_adapter_of_an_adapter_is_refused(adapter):
    shutil.copytree(adapter, adapter.parent / "second")
    edit_json(adapter.parent / "second" / CONFIG, base_model_name_or_path=str(adapter))
    with pytest.raises(BertJaxError, match="which is an adapter, too; write the latter as a whole model"):
        load(adapter.parent / "second")
