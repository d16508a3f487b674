"""How torch trains a model of `transformers` by a run's recipe."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.bench.libraries import libraries
from bert_jax.errors import BertJaxError
from bert_jax.train.config import OptimizerConfig


def quiet_transformers(seed: int) -> list[Any]:
    """[torch, transformers] with the seed set and without messages."""
    torch, transformers = libraries("torch", "transformers")
    torch.manual_seed(seed)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return [torch, transformers]


def padded(torch, rows: Sequence, padding: int):
    """Whole numbers [B, L] of rows of any lengths."""
    array = np.full((len(rows), max(map(len, rows))), padding, np.int64)
    for row, values in zip(array, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(array)


class Updates:
    """AdamW with linear decay, the gradient clipped, as the config has them."""

    def __init__(self, torch, model, recipe: OptimizerConfig, steps: int):
        if (recipe.name, recipe.schedule) != ("adam", "linear"):
            raise BertJaxError(
                f"--against transformers needs adam with linear decay, and the config has {recipe.name} with "
                f"{recipe.schedule}; set --config.optimizer.name=adam --config.optimizer.schedule=linear"
            )
        self.torch, self.model, self.clip = torch, model, recipe.clip
        names = dict(model.named_parameters())
        undecayed = {name for name in names if name.endswith("bias") or "norm" in name.lower()}
        groups = [
            {"params": [p for n, p in names.items() if (n in undecayed) is flat], "weight_decay": decay}
            for flat, decay in ((False, recipe.weight_decay), (True, 0.0))
        ]
        betas, warmup = (recipe.beta1, recipe.beta2), max(recipe.warmup_of(steps), 1)
        self.optimizer = torch.optim.AdamW(groups, recipe.rate, betas, recipe.epsilon, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min((step + 1) / warmup, (steps - step) / max(steps - warmup, 1))
        )

    def apply(self, loss) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.schedule.step()
