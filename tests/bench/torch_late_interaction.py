"""A late-interaction model that sentence-transformers trains from our initial values, with the same groups, order and
recipe."""

import tempfile
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.tasks.late_interaction import COMPARED, MASK, LateInteractionTask
from bert_jax.tasks.late_interaction import Config as LateInteractionConfig
from bert_jax.training.warm_start import read_initial_params
from tests.bench.libraries import libraries
from tests.bench.torch_training import TorchModel, pad_rows, quiet_transformers

PACKAGE = "sentence_transformers.multi_vector_encoder"


class TorchLateInteraction(TorchModel):
    def __init__(self, task: LateInteractionTask, config: LateInteractionConfig, pad: int):
        self.torch, _ = quiet_transformers(config.seed)
        library, losses = libraries(PACKAGE, f"{PACKAGE}.losses")
        self.task, self.config, self.pad = task, config, pad
        directories = ModelDirectories()
        params, _ = read_initial_params(directories, config.init, task, config.seed)
        with tempfile.TemporaryDirectory() as folder:
            hub.save_model(f"{folder}/model", task.layout, params, directories[config.init].tokenizer)
            self.model = library.MultiVectorEncoder(f"{folder}/model", device="cpu")
        settings = task.settings
        make = {
            "multiple_negatives": lambda: losses.MultiVectorMultipleNegativesRankingLoss(
                self.model, scale=settings.scale
            ),
            "teacher_ranking": lambda: losses.MultiVectorDistillKLDivLoss(
                self.model, temperature=1 / settings.scale
            ),
            "margin_mse": lambda: losses.MultiVectorMarginMSELoss(self.model),
        }
        if settings.mean or settings.normalize_scores:
            raise BertJaxError(
                "losses of means or of scaled scores cannot be compared; leave loss.normalize_scores out, and start "
                "from a model that compares by maxsim"
            )
        self.loss = make[task.loss.name]()

    def loss_of(self, pieces: Sequence[EncodedWindow]):
        size = self.task.texts_per_group
        columns = [self.tokens(pieces[n::size]) for n in range(size)]
        scores = [piece.targets["scores"] for piece in pieces[::size]] if self.task.scores_per_group else None
        tasks = ["query", *["document"] * (size - 1)]
        features = [tokens | {"task": task} for tokens, task in zip(columns, tasks, strict=True)]
        return self.loss(
            features, None if scores is None else self.torch.tensor(np.array(scores, np.float32))
        )

    def tokens(self, pieces: Sequence[EncodedWindow]) -> dict:
        """Return the padded tokens; those of queries that others do not attend to are named."""
        tokens = super().tokens(pieces)
        if MASK not in self.task.targets:
            return tokens
        attended = pad_rows(self.torch, [piece.targets[MASK] for piece in pieces], 0)
        hidden = (tokens["attention_mask"] - attended).bool()
        return tokens | {"attention_mask": attended, "query_expansion_positions": hidden}

    def outputs(self, pieces: Sequence[EncodedWindow]) -> Iterator[np.ndarray]:
        """Return the vectors of the tokens of each piece; those that are not compared are zeros."""
        vectors = self.model(self.tokens(pieces))["token_embeddings"].numpy()
        for piece, row in zip(pieces, vectors, strict=True):
            yield row[: len(piece)] * piece.targets[COMPARED][:, None]
