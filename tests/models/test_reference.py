"""Equality with `transformers` on torch: outputs, losses, gradients, and directories both ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.inference.load import load
from bert_jax.losses import loss as losses
from tests.support.model_outputs import compute_outputs
from tests.support.optional_modules import torch
from tests.support.seeded_arrays import seeded_batch
from tests.support.transformers_models import (
    assert_close,
    assert_gradients_close,
    save_transformers_model,
    transformers_inputs,
    transformers_mlm_labels,
)

pytestmark = pytest.mark.optimized
BERT = {
    "three_heads_three_segments": {
        "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 80, "vocab_size": 101,
        "type_vocab_size": 3, "max_position_embeddings": 40,
    },
    "one_segment_narrow_heads": {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 8, "intermediate_size": 50, "vocab_size": 257,
        "type_vocab_size": 1, "max_position_embeddings": 64, "hidden_act": "gelu_new",
    },
    "long_rows": {
        "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 96,
        "vocab_size": 1000, "max_position_embeddings": 512, "hidden_act": "relu",
    },
}  # fmt: skip
LENGTHS = {"three_heads_three_segments": (2, 40), "one_segment_narrow_heads": (33,), "long_rows": (512,)}
ROBERTA = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 80,
    "vocab_size": 120, "type_vocab_size": 1, "max_position_embeddings": 66, "pad_token_id": 1, "layer_norm_eps": 1e-5,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "length"), [(name, length) for name, lengths in LENGTHS.items() for length in lengths]
)
def test_pre_training_equals_transformers(name, length, tmp_path):
    theirs = save_transformers_model("BertForPreTraining", tmp_path, **BERT[name])
    model = load(tmp_path, tokenizer=False)
    token_types = BERT[name].get("type_vocab_size", 2)
    batch = seeded_batch(
        4, length, BERT[name]["vocab_size"], token_types, targets=min(6, length), seed=length
    )

    def loss(params):
        outputs = model.module.apply({"params": params}, batch)
        mlm = losses.cross_entropy(outputs["mlm"], batch["targets"], batch["target_weights"])
        nsp = losses.cross_entropy(outputs["nsp"], batch["labels"], batch["label_weights"])
        return mlm.mean + nsp.mean, outputs

    (ours, outputs), gradients = jax.device_get(jax.jit(jax.value_and_grad(loss, has_aux=True))(model.params))
    answer = theirs(
        **transformers_inputs(batch),
        labels=transformers_mlm_labels(batch),
        next_sentence_label=torch.from_numpy(batch["labels"]),
        output_hidden_states=True,
    )
    answer.loss.backward()

    assert_close(outputs["hidden"], answer.hidden_states[-1], batch["attention_mask"])
    assert_close(outputs["nsp"], answer.seq_relationship_logits)
    at_targets = torch.take_along_dim(
        answer.prediction_logits, torch.from_numpy(batch["target_positions"])[..., None], dim=1
    )
    assert_close(outputs["mlm"], at_targets)
    assert_close(ours, answer.loss)
    assert_gradients_close(to_hf_tensors(model.layout, gradients), theirs)


HEADS = [
    ("BertModel", BERT["three_heads_three_segments"]),
    ("BertForMaskedLM", BERT["three_heads_three_segments"]),
    ("BertForNextSentencePrediction", BERT["three_heads_three_segments"]),
    ("BertForSequenceClassification", BERT["three_heads_three_segments"] | {"num_labels": 5}),
    ("BertForTokenClassification", BERT["three_heads_three_segments"] | {"num_labels": 7}),
    ("BertForQuestionAnswering", BERT["three_heads_three_segments"]),
    ("RobertaModel", ROBERTA),
    ("RobertaForMaskedLM", ROBERTA),
    ("RobertaForSequenceClassification", ROBERTA | {"num_labels": 5}),
    ("XLMRobertaForTokenClassification", ROBERTA | {"num_labels": 7}),
    ("XLMRobertaForQuestionAnswering", ROBERTA),
]


@pytest.mark.slow
@pytest.mark.parametrize(("class_name", "config"), HEADS, ids=[name for name, _ in HEADS])
def test_head_equals_transformers_both_ways(class_name, config, tmp_path):
    theirs = save_transformers_model(class_name, tmp_path / "theirs", seed=3, **config)
    model = load(tmp_path / "theirs", tokenizer=False)
    batch = seeded_batch(3, 30, config["vocab_size"], config.get("type_vocab_size", 2), targets=4, seed=1)
    if "oberta" in class_name:
        batch["input_ids"] = np.where(
            batch["attention_mask"] > 0, np.maximum(batch["input_ids"], 5), config["pad_token_id"]
        )
    batch = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    ours = compute_outputs(model, batch)
    mask = batch["attention_mask"]

    def compare(answer):
        if class_name.endswith("Model"):
            assert_close(ours["hidden"], answer.last_hidden_state, mask)
            assert_close(ours["pooled"], answer.pooler_output)
        elif class_name.endswith("QuestionAnswering"):
            assert_close(ours["answer"][..., 0], answer.start_logits, mask)
            assert_close(ours["answer"][..., 1], answer.end_logits, mask)
        else:
            (head,) = model.layout.heads
            per_token = head in ("mlm", "tag")
            assert_close(ours[head], answer.logits, mask if per_token else None)

    compare(theirs(**transformers_inputs(batch)))
    model.save(tmp_path / "ours")
    opened, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    compare(opened.eval()(**transformers_inputs(batch)))


@pytest.mark.slow
def test_losses_equal_torch():
    random = np.random.RandomState(0)
    logits = random.standard_normal((6, 5)).astype(np.float32)
    labels = random.randint(0, 5, 6)
    weight = np.array([1, 1, 0, 1, 0, 1], np.float32)
    many = random.randint(0, 2, (6, 5)).astype(np.float32)
    kept = weight > 0
    torch_logits, torch_labels = torch.from_numpy(logits), torch.from_numpy(labels)
    functional = torch.nn.functional

    ours = losses.cross_entropy(logits, labels, weight, smoothing=0.1).mean
    assert_close(ours, functional.cross_entropy(torch_logits[kept], torch_labels[kept], label_smoothing=0.1))
    ours = losses.binary_cross_entropy(logits, many, weight).mean
    theirs = functional.binary_cross_entropy_with_logits(torch_logits[kept], torch.from_numpy(many[kept]))
    assert_close(ours, theirs)
    ours = losses.squared_error(logits[:, 0], labels, weight).mean
    assert_close(ours, functional.mse_loss(torch_logits[kept, 0], torch_labels[kept].float()))


@pytest.mark.slow
def test_answer_loss_equals_transformers(tmp_path):
    theirs = save_transformers_model(
        "BertForQuestionAnswering", tmp_path, **BERT["three_heads_three_segments"]
    )
    model = load(tmp_path, tokenizer=False)
    batch = seeded_batch(3, 30, 101, 3, targets=4, seed=1)
    starts, ends = np.array([1, 0, 4]), np.array([2, 5, 4])
    answer = theirs(
        **transformers_inputs(batch),
        start_positions=torch.from_numpy(starts),
        end_positions=torch.from_numpy(ends),
    )
    logits = compute_outputs(model, batch)["answer"]
    assert_close(losses.span_cross_entropy(logits, starts, ends, jnp.ones(3)).mean, answer.loss)
