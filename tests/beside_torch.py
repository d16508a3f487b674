"""A family's model beside the one of `transformers`, and packed rows beside separate ones."""

from functools import partial

import jax
import numpy as np

import bert_jax
from bert_jax import losses
from bert_jax.inference.model import Model
from gradients import assert_gradients_equal
from seeded import seeded_batch
from test_reference import assert_close, assert_gradients_close, inputs, masked_lm_labels, reference, torch

TARGETS = 4


def batch_of(config: dict, length: int, padded: bool) -> dict[str, np.ndarray]:
    """Rows of different lengths, or, not `padded`, of one."""
    segments = max(1, config.get("type_vocab_size", 0))
    batch = seeded_batch(3, length, config["vocab_size"], segments, TARGETS, seed=1)
    if not padded:
        batch["mask"] = np.ones_like(batch["mask"])
    batch["tokens"] = np.where(
        batch["mask"] > 0, np.maximum(batch["tokens"], 5), config.get("pad_token_id", 0)
    )
    return batch


def assert_equals_transformers(class_name: str, config: dict, path, length: int = 19, old=None) -> Model:
    """Hidden states, logits, loss and gradients; and our directory opened by the reference.

    `old` are beginnings of its names that it gives no more where we save, by those it gives now.
    """
    theirs = reference(class_name, path / "theirs", seed=3, **config)
    model = bert_jax.load(path / "theirs", tokenizer=False)
    # The reference's answers may begin and end in padding, whose states are nobody's business.
    batch = batch_of(config, length, padded=model.layout.heads != ("answer",))
    read = {name: batch[name] for name in ("tokens", "segments", "mask")}
    names = {"input_ids", "attention_mask", *(["token_type_ids"] if config.get("type_vocab_size") else [])}
    their_inputs = {name: array for name, array in inputs(batch).items() if name in names}
    their_inputs |= labels_of(model, batch, config)

    def loss(params):
        outputs = model.module.apply({"params": params}, read)
        return loss_of(model, outputs, batch).mean, outputs

    (ours, outputs), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(model.params)
    answer = theirs(**their_inputs, output_hidden_states=True)
    assert_close(outputs["hidden"], answer.hidden_states[-1], batch["mask"])
    compare_logits(model, outputs, answer, batch["mask"])
    if model.layout.heads:
        assert_close(ours, answer.loss)
        answer.loss.backward()
        published = model.layout.published_tensors(gradients)
        for new, name in (old or {}).items():
            published = {key.replace(new, name): gradient for key, gradient in published.items()}
        assert_gradients_close(seen(published, theirs), theirs)

    model.save(path / "ours")
    opened, report = type(theirs).from_pretrained(path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    compare_logits(model, outputs, opened.eval()(**their_inputs), batch["mask"])
    return model


def seen(ours: dict, theirs) -> dict:
    """Without what the reference has no parameter for; where it has one that nothing reads, its gradient is 0."""
    for parameter in theirs.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    names = dict(theirs.named_parameters())
    return {name: gradient for name, gradient in ours.items() if name in names}


def labels_of(model: Model, batch: dict, config: dict) -> dict:
    labels = config.get("num_labels", 2)
    match model.layout.heads:
        case ("mlm",):
            return {"labels": masked_lm_labels(batch)}
        case ("classify",):
            return {"labels": torch.from_numpy(batch["labels"] % labels)}
        case ("tag",):
            tags = np.where(batch["mask"] > 0, batch["tokens"] % labels, -100)
            return {"labels": torch.from_numpy(tags)}
        case ("answer",):
            spans = {"start_positions": np.array([1, 0, 4]), "end_positions": np.array([2, 3, 4])}
            return {name: torch.from_numpy(places) for name, places in spans.items()}
    return {}


def loss_of(model: Model, outputs: dict, batch: dict) -> losses.Loss:
    labels = len(model.layout.labels)
    match model.layout.heads:
        case ("mlm",):
            at = np.broadcast_to(np.arange(len(batch["mask"]))[:, None], batch["targets"].shape)
            return losses.cross_entropy(
                outputs["mlm"][at, batch["target_positions"]], batch["targets"], batch["target_weight"]
            )
        case ("classify",):
            return losses.cross_entropy(outputs["classify"], batch["labels"] % labels, batch["weight"])
        case ("tag",):
            return losses.cross_entropy(outputs["tag"], batch["tokens"] % labels, batch["mask"])
        case ("answer",):
            starts, ends = np.array([1, 0, 4]), np.array([2, 3, 4])
            return losses.span_cross_entropy(outputs["answer"], starts, ends, np.ones(3))
    return losses.weigh(outputs["hidden"][..., 0], batch["mask"])


def compare_logits(model: Model, outputs: dict, answer, mask) -> None:
    match model.layout.heads:
        case ():
            assert_close(outputs["hidden"], answer.last_hidden_state, mask)
            if model.layout.pooler:
                assert_close(outputs["pooled"], answer.pooler_output)
        case ("answer",):
            assert_close(outputs["answer"][..., 0], answer.start_logits, mask)
            assert_close(outputs["answer"][..., 1], answer.end_logits, mask)
        case (head,):
            assert_close(outputs[head], answer.logits, mask if head in ("mlm", "tag") else None)


def assert_packs_equal_rows(model: Model, lengths=(5, 9, 3)) -> None:
    """Texts side by side in one row, and each in a row of its own: states and gradients."""
    random = np.random.RandomState(5)
    width, vocab_size = max(lengths), model.config.vocab_size
    texts = [random.randint(5, vocab_size, n) for n in lengths]
    apart = np.stack([np.pad(text, (0, width - len(text))) for text in texts])
    mask = np.stack([np.arange(width) < n for n in lengths]).astype(int)
    total = sum(lengths)
    beside = np.pad(np.concatenate(texts), (0, 3))[None]
    packs = np.pad(np.repeat(np.arange(len(lengths)) + 1, lengths), (0, 3))[None]
    begins = np.cumsum([0, *lengths[:-1]])[None]
    target = random.standard_normal((total, 1)).astype(np.float32)
    rows = {"tokens": apart, "mask": mask}
    packed = {"tokens": beside, "mask": (packs > 0).astype(int), "packs": packs, "cls_positions": begins}

    def gradient(batch):
        batch = batch | {"segments": np.zeros_like(batch["tokens"])}

        def loss(params):
            outputs = model.module.apply({"params": params}, batch)
            states = [outputs[name][batch["mask"] > 0] for name in ("hidden", *model.layout.heads)]
            return sum((part * part[:, ::-1] * target).sum() for part in states), states

        (_, states), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(model.params)
        return states, gradients

    (ours, our_gradients), (expected, expected_gradients) = gradient(packed), gradient(rows)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), ours, expected)
    assert_gradients_equal(our_gradients, expected_gradients)
