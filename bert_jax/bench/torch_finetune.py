"""The same fine-tuning by `transformers` on torch, for comparison: the usual loop, each batch padded to its longest."""

import time
from collections.abc import Sequence

import numpy as np

from bert_jax.bench.rivals import rivals
from bert_jax.bench.torch_recipe import torch_recipe
from bert_jax.data.examples.arrange import Piece
from bert_jax.data.examples.epochs import shuffled
from bert_jax.tasks.finetune import FinetuneConfig

AUTO = {
    "classify": "AutoModelForSequenceClassification",
    "tag": "AutoModelForTokenClassification",
    "answer": "AutoModelForQuestionAnswering",
}
IGNORED = -100  # by torch's cross entropy


class TorchFinetuning:
    """From the same directory, pieces, order and recipe; its head has initial values of its own."""

    def __init__(self, config: FinetuneConfig, head: str, labels: int, problem: str | None, pad: int):
        torch, transformers = rivals("torch", "transformers")
        self.torch, self.config, self.pad = torch, config, pad
        torch.manual_seed(config.seed)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        settings: dict[str, int | str] = {"num_labels": labels} if labels else {}
        settings |= {"problem_type": problem} if problem else {}
        self.model = getattr(transformers, AUTO[head]).from_pretrained(config.init, **settings).float()

    def inputs(self, pieces: Sequence[Piece]) -> dict:
        length = max(map(len, pieces))
        found = {
            name: np.zeros((len(pieces), length), np.int64)
            for name in ("input_ids", "token_type_ids", "attention_mask")
        }
        found["input_ids"][:] = self.pad
        for row, piece in enumerate(pieces):
            found["input_ids"][row, : len(piece)] = piece.encoding.ids
            found["token_type_ids"][row, : len(piece)] = piece.encoding.segments
            found["attention_mask"][row, : len(piece)] = 1
        return {name: self.torch.from_numpy(value) for name, value in found.items()}

    def targets(self, pieces: Sequence[Piece]) -> dict:
        """Our targets as transformers' arguments."""
        names = pieces[0].targets
        if "starts" in names:
            return {
                theirs: self.torch.tensor([piece.targets[ours] for piece in pieces])
                for theirs, ours in (("start_positions", "starts"), ("end_positions", "ends"))
            }
        if np.ndim(names["weight"]):
            labels = np.full((len(pieces), max(map(len, pieces))), IGNORED)
            for row, piece in enumerate(pieces):
                kept = piece.targets["weight"] > 0
                labels[row, : len(piece)] = np.where(kept, piece.targets["labels"], IGNORED)
            return {"labels": self.torch.from_numpy(labels)}
        labels = np.array([piece.targets["labels"] for piece in pieces])
        kind = np.int64 if labels.ndim == 1 and labels.dtype.kind == "i" else np.float32
        return {"labels": self.torch.from_numpy(labels.astype(kind))}

    def fit(self, pieces: Sequence[Piece]) -> float:
        """Trains, and gives the seconds it took."""
        torch, config, recipe = self.torch, self.config, self.config.optimizer
        optimizer, schedule = torch_recipe(torch, self.model, recipe, config.steps)
        batch = config.data.batch
        chosen = shuffled(len(pieces), config.steps * batch, config.seed).reshape(config.steps, batch)
        self.model.train()
        begun = time.perf_counter()
        for places in chosen:
            taken = [pieces[i] for i in places]
            loss = self.model(**self.inputs(taken), **self.targets(taken)).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip)
            optimizer.step()
            schedule.step()
        return time.perf_counter() - begun

    def predict(self, pieces: Sequence[Piece]) -> list[np.ndarray]:
        """Each piece's logits, in order, as our judges read them."""
        found: list = [None] * len(pieces)
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))
        self.model.eval()
        with self.torch.no_grad():
            for start in range(0, len(order), 32):
                places = order[start : start + 32]
                outputs = self.model(**self.inputs([pieces[i] for i in places]))
                spans = "start_logits" in outputs
                logits = (
                    self.torch.stack([outputs.start_logits, outputs.end_logits], -1)
                    if spans
                    else outputs.logits
                ).numpy()
                for place, row in zip(places, logits, strict=True):
                    found[place] = row[: len(pieces[place])] if row.ndim == 2 else row
        return found
