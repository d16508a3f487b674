"""An embedder that sentence-transformers trains from the same directory, with the same groups, order and recipe."""

from collections.abc import Sequence

import numpy as np

from bert_jax.bench.libraries import libraries
from bert_jax.bench.torch_training import TorchModel, quiet_transformers
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.arrange import Piece
from bert_jax.finetuning.embed_config import EmbedConfig
from bert_jax.finetuning.embedding_task import Embedding
from bert_jax.losses.embedding import LOSSES

BOTH_WAYS = ("query_to_doc", "doc_to_query")


class TorchEmbedding(TorchModel):
    def __init__(self, task: Embedding, config: EmbedConfig, pad: int):
        self.torch, _ = quiet_transformers(config.seed)
        library, losses = libraries("sentence_transformers", "sentence_transformers.losses")
        self.task, self.config, self.pad = task, config, pad
        self.model = library.SentenceTransformer(config.init, device="cpu")
        self.loss = self.make_loss(losses)

    def make_loss(self, losses):
        name = next(name for name, loss in LOSSES.items() if loss is self.task.loss)
        settings, model = self.task.settings, self.model
        make = {
            "multiple_negatives": lambda: losses.MultipleNegativesRankingLoss(
                model,
                scale=settings.scale,
                directions=BOTH_WAYS if settings.symmetric else BOTH_WAYS[:1],
                partition_mode="per_direction" if settings.symmetric else "joint",
            ),
            "cosent": lambda: losses.CoSENTLoss(model, scale=settings.scale),
            "triplet": lambda: losses.TripletLoss(model, triplet_margin=settings.margin),
            "margin_mse": lambda: losses.MarginMSELoss(model),
        }
        if name not in make:
            raise BertJaxError(
                f"loss.name={name} cannot be compared; set loss.name to one of {', '.join(make)}"
            )
        loss = make[name]()
        return losses.MatryoshkaLoss(model, loss, list(self.task.sizes)) if self.task.sizes else loss

    def loss_of(self, pieces: Sequence[Piece]):
        return self.loss(self.inputs(pieces), self.targets(pieces))

    def outputs(self, pieces: Sequence[Piece]) -> np.ndarray:
        """Return the vector of each text, normalized to length 1."""
        vectors = self.model(self.tokens(pieces))["sentence_embedding"]
        return self.torch.nn.functional.normalize(vectors, dim=-1).numpy()

    def inputs(self, pieces: Sequence[Piece]) -> list[dict]:
        """Return the tokens of the texts of each column."""
        return [self.tokens(pieces[n :: self.task.texts]) for n in range(self.task.texts)]

    def targets(self, pieces: Sequence[Piece]):
        firsts = pieces[:: self.task.texts]
        scores = np.array([piece.targets.get("scores", ()) for piece in firsts], np.float32)
        return self.torch.from_numpy(scores[:, 0] if scores.shape[1] == 1 else scores)
