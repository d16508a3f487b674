"""Models of `transformers` with seeded weights, and comparisons with them."""

import numpy as np

from tests.support.optional_modules import torch, transformers
from tests.support.seeded_arrays import seeded_tensors


def save_transformers_model(class_name: str, directory, seed: int = 0, **config):
    """A transformers model with seeded weights, saved to `directory`."""
    model_class = getattr(transformers, class_name)
    model = model_class(model_class.config_class(**config)).eval()
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    with torch.no_grad():
        for name, value in seeded_tensors(shapes, seed).items():
            model.get_parameter(name).copy_(torch.from_numpy(value))
    model.save_pretrained(directory)
    return model


def transformers_inputs(batch) -> dict:
    names = ("input_ids", "token_type_ids", "attention_mask")
    return {name: torch.from_numpy(np.asarray(batch[name], np.int64)) for name in names}


def transformers_mlm_labels(batch):
    labels = np.full(batch["input_ids"].shape, -100)
    for row in range(len(labels)):
        for k in np.flatnonzero(batch["target_weights"][row]):
            labels[row, batch["target_positions"][row, k]] = batch["targets"][row, k]
    return torch.from_numpy(labels)


def assert_close(ours, theirs, mask=None, tolerance=1e-5):
    difference = np.abs(np.asarray(ours) - theirs.detach().numpy())
    if mask is not None:
        difference = difference[mask > 0]
    assert difference.max() <= tolerance


def assert_gradients_close(ours: dict, model):
    theirs = {name: p.grad.numpy() for name, p in model.named_parameters()}
    assert set(ours) == set(theirs)
    # Some gradients are zero but for rounding (that of the attention's key bias always is): they are measured
    # against the whole gradient instead of themselves.
    floor = 1e-3 * np.sqrt(sum((g**2).sum() for g in theirs.values()))
    for name, gradient in theirs.items():
        assert np.abs(ours[name] - gradient).max() <= 1e-4 * max(np.abs(gradient).max(), floor), name
