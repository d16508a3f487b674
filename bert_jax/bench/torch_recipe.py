"""A run's optimizer and schedule, as torch has them."""

from typing import Any

from bert_jax.errors import BertJaxError
from bert_jax.train.config import OptimizerConfig


def torch_recipe(torch: Any, model: Any, recipe: OptimizerConfig, steps: int) -> tuple[Any, Any]:
    if (recipe.name, recipe.schedule) != ("adam", "linear"):
        raise BertJaxError(
            f"--against transformers has adam with linear decay, and the config asks for {recipe.name} with "
            f"{recipe.schedule}; set --config.optimizer.name=adam --config.optimizer.schedule=linear"
        )
    names = dict(model.named_parameters())
    flat = {name for name in names if name.endswith("bias") or "LayerNorm" in name}
    groups = [
        {"params": [p for n, p in names.items() if n not in flat], "weight_decay": recipe.weight_decay},
        {"params": [p for n, p in names.items() if n in flat], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups, recipe.rate, (recipe.beta1, recipe.beta2), recipe.epsilon, fused=True
    )
    warmup = max(recipe.warmup_of(steps), 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / max(steps - warmup, 1))
    )
    return optimizer, schedule
