"""The same pre-training step by `transformers` on torch, for comparison."""

from dataclasses import dataclass

import numpy as np

from bert_jax.bench.rivals import rivals


@dataclass(frozen=True)
class Variant:
    """How torch may compute it. Its attention is always its fused one."""

    autocast: bool
    compiled: bool

    def __str__(self) -> str:
        return ("bfloat16 autocast" if self.autocast else "float32") + (", compiled" if self.compiled else "")


VARIANTS = [Variant(autocast, compiled) for autocast in (False, True) for compiled in (False, True)]


class TorchStep:
    """Each call takes one step and waits for it."""

    def __init__(self, shape, batch: dict[str, np.ndarray], autocast: bool, compiled: bool):
        torch, transformers = rivals("torch", "transformers")
        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        config = shape.config().model
        self.model = transformers.BertForPreTraining(
            transformers.BertConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                intermediate_size=config.feed_forward,
                max_position_embeddings=config.max_positions,
                hidden_dropout_prob=config.dropout,
                attention_probs_dropout_prob=config.attention_dropout,
                attn_implementation="sdpa",
            )
        ).to(self.device)
        self.model.train()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), 1e-4, weight_decay=0.01, eps=1e-6, fused=True
        )
        self.autocast = autocast
        self.forward = torch.compile(self.model) if compiled else self.model
        self.inputs = {name: value.to(self.device) for name, value in self.arguments(batch).items()}

    def arguments(self, batch) -> dict:
        tensor = lambda array: self.torch.from_numpy(np.asarray(array, np.int64))  # noqa: E731
        labels = np.full(batch["tokens"].shape, -100)
        np.put_along_axis(labels, batch["target_positions"], batch["targets"], axis=1)
        # transformers has no packed rows: there, a row is one sequence.
        next_sentence = batch.get("labels", np.zeros(len(labels)))
        return {
            "input_ids": tensor(batch["tokens"]),
            "token_type_ids": tensor(batch["segments"]),
            "labels": tensor(labels),
            "next_sentence_label": tensor(next_sentence),
        }

    def __call__(self) -> None:
        with self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.autocast):
            loss = self.forward(**self.inputs).loss
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss.item()
