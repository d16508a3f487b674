"""Train a model of `transformers` in torch with the recipe of a run of ours."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.finetuning.epochs_config import EpochsConfig
from bert_jax.training.run_config import OptimizerConfig
from tests.bench.libraries import libraries

ROWS = 32  # batch size of torch's evaluation


def quiet_transformers(seed: int) -> list[Any]:
    """Return [torch, transformers], with the seed set and their messages turned off."""
    torch, transformers = libraries("torch", "transformers")
    torch.manual_seed(seed)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return [torch, transformers]


def pad_rows(torch, rows: Sequence, padding: int):
    """Pad rows of integers to a tensor [B, L]."""
    array = np.full((len(rows), max(map(len, rows))), padding, np.int64)
    for row, values in zip(array, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(array)


class TorchModel(ABC):
    """A torch model that is trained on the pieces of each step."""

    torch: Any
    model: Any
    config: EpochsConfig
    pad: int

    @abstractmethod
    def loss_of(self, pieces: Sequence[EncodedWindow]):
        """Return the loss of the pieces of a step."""

    @abstractmethod
    def outputs(self, pieces: Sequence[EncodedWindow]) -> Iterable[np.ndarray]:
        """Return the outputs of the pieces of a batch in the form of our task's predictions, without gradients."""

    def predict(self, pieces: Sequence[EncodedWindow]) -> list[np.ndarray]:
        """Return the outputs of each piece, in the order of the pieces. Pieces of similar length share a batch."""
        predictions: list = [None] * len(pieces)
        order = np.argsort([len(piece) for piece in pieces])
        self.model.eval()
        with self.torch.no_grad():
            for indices in np.split(order, range(ROWS, len(order), ROWS)):
                for i, output in zip(indices, self.outputs([pieces[i] for i in indices]), strict=True):
                    predictions[i] = output
        return predictions

    def train(self, data: Epochs) -> tuple[float, list[float]]:
        """Train; return the seconds of all steps, and the loss of each step."""
        losses: list[float] = []
        updates = Updates(self.torch, self.model, self.config.optimizer, self.config.steps)
        self.model.train()
        start = time.perf_counter()
        for numbers in data.chosen:
            loss = self.loss_of([data.train[i] for i in numbers])
            updates.apply(loss)
            losses.append(loss.item())
        return time.perf_counter() - start, losses

    def tokens(self, pieces: Sequence[EncodedWindow]) -> dict:
        """Return the padded tokens under the names of transformers."""
        encodings = [piece.encoding for piece in pieces]
        return {
            "input_ids": pad_rows(self.torch, [encoding.input_ids for encoding in encodings], self.pad),
            "token_type_ids": pad_rows(self.torch, [encoding.token_type_ids for encoding in encodings], 0),
            "attention_mask": pad_rows(
                self.torch, [[1] * len(encoding.input_ids) for encoding in encodings], 0
            ),
        }


class Updates:
    """AdamW with warm-up, linear decay and gradient clipping, as in the config."""

    def __init__(self, torch, model, recipe: OptimizerConfig, steps: int):
        if (recipe.name, recipe.schedule) != ("adam", "linear"):
            raise BertJaxError(
                f"the comparison needs adam with linear decay, and the config has {recipe.name} with "
                f"{recipe.schedule}; set --config.optimizer.name=adam --config.optimizer.schedule=linear"
            )
        self.torch, self.model, self.clip = torch, model, recipe.max_grad_norm
        names = dict(model.named_parameters())
        undecayed = {name for name in names if name.endswith("bias") or "norm" in name.lower()}
        groups = [
            {"params": [p for n, p in names.items() if (n in undecayed) is flat], "weight_decay": decay}
            for flat, decay in ((False, recipe.weight_decay), (True, 0.0))
        ]
        betas, warmup = (recipe.beta1, recipe.beta2), max(recipe.num_warmup_steps(steps), 1)
        self.optimizer = torch.optim.AdamW(groups, recipe.learning_rate, betas, recipe.epsilon, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min((step + 1) / warmup, (steps - step) / max(steps - warmup, 1))
        )

    def apply(self, loss) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.schedule.step()
