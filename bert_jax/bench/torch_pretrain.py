"""The same pre-training by `transformers` on torch, for comparison: from the same initial weights, on the same batches
by the same recipe, judged on the same rows. It decodes the masked places alone, as we do."""

import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from bert_jax.bench.rivals import rivals
from bert_jax.bench.torch_recipe import torch_recipe
from bert_jax.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.tasks.pretrain import Config, Corpora, Pretraining
from bert_jax.train.sharding import make_mesh
from bert_jax.train.state import initial_state

SUMS = "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"


class TorchPretraining:
    def __init__(self, task: Pretraining, data: Corpora, config: Config):
        torch, transformers = rivals("torch", "transformers")
        if task.layout.heads != ("mlm", "nsp"):
            raise BertJaxError("transformers has no packed rows; leave --against away, or pre-train on pairs")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self.torch, self.data, self.config = torch, data, config
        torch.manual_seed(config.seed)
        with tempfile.TemporaryDirectory() as directory:
            state = initial_state(task, config, make_mesh(config.mesh))
            hub.save(directory, task.layout, jax.device_get(state.params))
            self.model = transformers.BertForPreTraining.from_pretrained(directory)

    def measure(self, batch: dict[str, np.ndarray]) -> tuple[Any, np.ndarray]:
        """The loss that is trained on, and [total, weight] of each of SUMS."""
        torch = self.torch
        given = {name: torch.from_numpy(np.asarray(value, np.int64)) for name, value in batch.items()}
        hidden, pooled = self.model.bert(given["tokens"], given["mask"], given["segments"], return_dict=False)
        row, column = (given["target_weight"] > 0).nonzero(as_tuple=True)
        words, pairs = self.model.cls(hidden[row, given["target_positions"][row, column]], pooled)
        real = given["weight"] > 0
        judged = (words, given["targets"][row, column]), (pairs[real], given["labels"][real])
        losses = [torch.nn.functional.cross_entropy(logits, labels) for logits, labels in judged]
        sums = []
        for loss, (logits, labels) in zip(losses, judged, strict=True):
            right = (logits.argmax(-1) == labels).sum().item()
            sums += [(loss.item() * len(labels), len(labels)), (right, len(labels))]
        return sum(losses), np.array(sums)

    def heldout(self, length: int) -> dict[str, float]:
        self.model.eval()
        total = np.zeros((len(SUMS), 2))
        with self.torch.no_grad():
            for n, batch in enumerate(self.data.heldout(length, 0, 1)):
                if n == self.config.log.evaluate_batches > 0:
                    break
                total += self.measure(batch)[1]
        self.model.train()
        return dict(zip(SUMS, (total[:, 0] / total[:, 1]).tolist(), strict=True))

    def lines(self) -> Iterator[dict]:
        """What is held out, as often as in the run itself."""
        config, every = self.config, self.config.log.evaluate_every
        optimizer, schedule = torch_recipe(self.torch, self.model, config.optimizer, config.steps)
        self.model.train()
        for step, batch in enumerate(self.data.batches(0, config.steps, 0, 1), 1):
            loss, _ = self.measure(batch)
            optimizer.zero_grad()
            loss.backward()
            self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.optimizer.clip)
            optimizer.step()
            schedule.step()
            if step == config.steps or step % every == 0:
                yield {"step": step} | self.heldout(self.data.length(step - 1))
