"""A family beside `transformers`: hidden states, logits, losses and gradients, and directories both ways."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.inference.load import load
from bert_jax.losses import loss as losses
from bert_jax.models.bert import Bert
from tests.support.optional_modules import torch
from tests.support.seeded_arrays import seeded_batch
from tests.support.transformers_models import (
    assert_close,
    assert_gradients_close,
    save_transformers_model,
    transformers_inputs,
    transformers_mlm_labels,
)

LABEL_COUNT = 3  # of classes and tags


# Heads of one output for each token; the others have one for each row.
PER_TOKEN = ("mlm", "tag", "answer", "replaced")


def assert_equals_transformers(
    prefix: str,
    classes: dict[str, tuple[str, ...]],
    config: dict,
    root,
    length: int = 19,
    old: dict | None = None,
) -> None:
    """Each class of the family with its heads, all computed by one program of ours, which takes long to compile.

    `old` are beginnings of the reference's names that it no longer gives where we save, by those that it gives now.
    """
    theirs = {}
    for suffix in classes:
        labels = {"num_labels": LABEL_COUNT} if suffix.endswith("Classification") else {}
        theirs[suffix] = save_transformers_model(prefix + suffix, root / suffix, seed=3, **config, **labels)
    ours = {suffix: load(root / suffix, tokenizer=False) for suffix in classes}
    whole = {name: part for model in ours.values() for name, part in model.params.items()}
    heads = list(dict.fromkeys(head for of_class in classes.values() for head in of_class))
    encoder = next(iter(ours.values())).config
    module = Bert(encoder, tuple(heads), LABEL_COUNT, "pooler" in whole)

    def loss(params, batch, weights):
        outputs = module.apply({"params": params}, batch)
        return sum(weights[head] * head_loss(head, outputs[head], batch).mean for head in heads), outputs

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    for suffix, of_class in classes.items():
        batch = batch_for_heads(of_class, config, encoder, length)
        given = transformers_inputs(batch)
        if not encoder.type_vocab_size:
            del given["token_type_ids"]
        model, weights = ours[suffix], {head: float(head in of_class) for head in heads}
        assert model.layout.heads == of_class and model.config == encoder
        (total, outputs), gradients = jax.device_get(run(whole | model.params, batch, weights))
        answer = theirs[suffix](**given, **labels_for_heads(of_class, batch), output_hidden_states=True)
        hidden = answer.last_hidden_state if "last_hidden_state" in answer else answer.hidden_states[-1]
        assert_close(outputs["hidden"], hidden, batch["attention_mask"])
        assert_outputs_close(of_class, outputs, answer, batch)
        if of_class:
            assert_close(total, answer.loss)
            answer.loss.backward()
            own = {name: gradients[name] for name in model.layout.module_names}
            assert_gradients_close(
                rename_tensors(to_hf_tensors(model.layout, own), old or {}), fill_gradients(theirs[suffix])
            )
        saved = root / f"{suffix}-ours"
        model.save(saved)
        opened, report = type(theirs[suffix]).from_pretrained(saved, output_loading_info=True)
        assert not any(report.values()), report
        assert_outputs_close(of_class, outputs, opened.eval()(**given), batch)


def rename_tensors(published: dict, old: dict) -> dict:
    for new, name in old.items():
        published = {key.replace(new, name): gradient for key, gradient in published.items()}
    return published


def fill_gradients(model):
    """The gradient of a parameter that nothing reads is 0."""
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return model


def batch_for_heads(heads, config: dict, encoder, length: int = 19) -> dict:
    batch = seeded_batch(3, length, config["vocab_size"], max(encoder.type_vocab_size, 1), targets=4, seed=1)
    if "answer" in heads:  # the reference's loss reads padding, whose embedding it gives no gradient
        batch["attention_mask"][:] = 1
    # Some references tell padding by its token.
    words = np.maximum(batch["input_ids"], 5)
    batch["input_ids"] = np.where(batch["attention_mask"] > 0, words, config.get("pad_token_id", 0))
    random, mask = np.random.RandomState(2), batch["attention_mask"]
    more = {
        "classes": random.randint(0, LABEL_COUNT, len(mask)),
        "tags": random.randint(0, LABEL_COUNT, mask.shape),
        "ends": mask.sum(1) - 1,
    }
    return batch | more


def labels_for_heads(heads, batch: dict) -> dict:
    """What the reference is given as labels."""
    mask = batch["attention_mask"]
    labels = {
        "mlm": {"labels": transformers_mlm_labels(batch)},
        "sop": {"sentence_order_label": torch.from_numpy(batch["labels"])},
        "classify": {"labels": torch.from_numpy(batch["classes"])},
        "tag": {"labels": torch.from_numpy(np.where(mask > 0, batch["tags"], -100))},
        "replaced": {"labels": torch.from_numpy(batch["tags"] % 2)},
        "answer": {
            "start_positions": torch.ones(len(mask), dtype=torch.long),
            "end_positions": torch.from_numpy(batch["ends"]),
        },
    }
    return {name: value for head in heads for name, value in labels[head].items()}


def head_loss(head: str, logits, batch: dict) -> losses.Loss:
    mask, one = batch["attention_mask"], jnp.ones(len(batch["attention_mask"]))
    match head:
        case "mlm":
            return losses.cross_entropy(logits, batch["targets"], batch["target_weights"])
        case "sop":
            return losses.cross_entropy(logits, batch["labels"], one)
        case "classify":
            return losses.cross_entropy(logits, batch["classes"], one)
        case "tag":
            return losses.cross_entropy(logits, batch["tags"], mask)
        case "replaced":
            return losses.binary_cross_entropy(logits[..., None], batch["tags"][..., None] % 2, mask)
        case "answer":
            return losses.span_cross_entropy(logits, jnp.ones_like(batch["ends"]), batch["ends"], one)
    raise AssertionError(head)


def assert_outputs_close(heads, outputs: dict, answer, batch: dict) -> None:
    """The heads' logits, or what the encoder gives where there are none."""
    if not heads:
        assert_close(outputs["hidden"], answer.last_hidden_state, batch["attention_mask"])
        if "pooler_output" in answer:
            assert_close(outputs["pooled"], answer.pooler_output)
    for head in heads:
        mask = batch["attention_mask"] if head in PER_TOKEN else None
        if head == "mlm":
            positions = torch.from_numpy(batch["target_positions"])[..., None]
            logits = answer.logits if "logits" in answer else answer.prediction_logits
            assert_close(outputs["mlm"], torch.take_along_dim(logits, positions, dim=1))
        elif head == "answer":
            assert_close(outputs["answer"][..., 0], answer.start_logits, mask)
            assert_close(outputs["answer"][..., 1], answer.end_logits, mask)
        else:
            assert_close(outputs[head], answer.sop_logits if head == "sop" else answer.logits, mask)


FINE_TUNED_HEADS = {
    "ForSequenceClassification": ("classify",),
    "ForTokenClassification": ("tag",),
    "ForQuestionAnswering": ("answer",),
}
