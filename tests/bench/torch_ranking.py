"""A cross-encoder that sentence-transformers trains from our directory, with the same queries, order and recipe."""

from collections.abc import Sequence

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.tasks.rerank import Config as RerankConfig
from bert_jax.tasks.rerank import RankingTask
from tests.bench.libraries import libraries
from tests.bench.torch_training import TorchModel, quiet_transformers


class TorchRanking(TorchModel):
    def __init__(self, task: RankingTask, config: RerankConfig, pad: int):
        self.torch, _ = quiet_transformers(config.seed)
        library, losses = libraries("sentence_transformers", "sentence_transformers.cross_encoder.losses")
        self.task, self.config, self.pad = task, config, pad
        self.model = library.CrossEncoder(config.init, num_labels=1, device="cpu")
        # Its losses get pieces as documents, so that nothing is tokenized twice.
        self.model.preprocess = lambda pairs, **_: self.tokens([piece for _, piece in pairs])
        make = {
            "binary": losses.BinaryCrossEntropyLoss,
            "list_net": losses.ListNetLoss,
            "rank_net": losses.RankNetLoss,
            "lambda_rank": losses.LambdaLoss,
        }
        if task.loss.name not in make:
            raise BertJaxError(
                f"loss.name={task.loss.name} cannot be compared; set loss.name to one of {', '.join(make)}"
            )
        self.loss = make[task.loss.name](self.model)

    def loss_of(self, pieces: Sequence[EncodedWindow]):
        size, tensor = self.task.max_documents, self.torch.tensor
        lists = [pieces[first : first + size] for first in range(0, len(pieces), size)]
        lists = [[piece for piece in of_query if piece.targets["label_weights"]] for of_query in lists]
        labels = [tensor([piece.targets["labels"] for piece in of_query]) for of_query in lists]
        if self.task.loss.name == "binary":
            documents = [piece for of_query in lists for piece in of_query]
            return self.loss([[""] * len(documents), documents], self.torch.cat(labels))
        return self.loss([[""] * len(lists), lists], labels)

    def outputs(self, pieces: Sequence[EncodedWindow]) -> np.ndarray:
        """Return the logit [1] of each piece."""
        return self.model(self.tokens(pieces))["scores"].reshape(-1, 1).numpy()
