"""Training next to `transformers`: same initial weights, same batches, same optimizer and schedule, dropout off."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.hub import model_directory as hub
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import make_step
from tests.support.optional_modules import torch, transformers
from tests.support.tiny_pretraining import Batches, tiny_pretraining
from tests.support.transformers_models import transformers_inputs, transformers_mlm_labels

STEPS = 200


def theirs(directory, data, config):
    """Losses of transformers' model, step by step, with torch's AdamW and the published recipe."""
    model = transformers.BertForPreTraining.from_pretrained(directory).train()
    names = dict(model.named_parameters())
    flat = [name for name in names if name.endswith("bias") or "LayerNorm" in name]
    groups = [
        {"params": [names[name] for name in names if name not in flat], "weight_decay": config.weight_decay},
        {"params": [names[name] for name in flat], "weight_decay": 0.0},
    ]
    betas = config.beta1, config.beta2
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.epsilon)
    rise = lambda step: min((step + 1) / config.warmup_steps, (STEPS - step) / (STEPS - config.warmup_steps))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rise)
    losses = []
    for batch in data.batches(0, STEPS, 0, 1):
        labels = torch.from_numpy(np.asarray(batch["labels"], np.int64))
        loss = model(
            **transformers_inputs(batch), labels=transformers_mlm_labels(batch), next_sentence_label=labels
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.long
def test_two_hundred_steps_are_those_of_transformers(tmp_path):
    task, config = tiny_pretraining(STEPS, layers=2, warmup_steps=20)
    quiet = task.layout.config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    task = dataclasses.replace(task, layout=dataclasses.replace(task.layout, config=quiet))
    data, mesh = Batches(rows=8), make_mesh(config.mesh)
    state, step = initial_state(task, config, mesh), make_step(task, config, mesh)
    hub.save_model(tmp_path, task.layout, jax.device_get(state.params))
    constants = make_constants(task, config, mesh)
    ours = []
    for batch in data.batches(0, STEPS, 0, 1):
        state, measured = step(state, batch, constants)
        ours.append(sum(float(loss.mean) for loss in measured["losses"].values()))
    assert ours[0] - ours[-1] > 3
    np.testing.assert_allclose(ours, theirs(tmp_path, data, config.optimizer), rtol=1e-3)
