"""A sparse embedder that sentence-transformers trains from our directory, with the same groups, order and recipe."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.inference.computations import SparseVector
from bert_jax.tasks.sparse import Config as SparseConfig
from bert_jax.tasks.sparse import SparseTask
from tests.bench.libraries import libraries
from tests.bench.torch_training import TorchModel, quiet_transformers

PACKAGE = "sentence_transformers.sparse_encoder"


class TorchSparse(TorchModel):
    def __init__(self, task: SparseTask, config: SparseConfig, pad: int):
        self.torch, _ = quiet_transformers(config.seed)
        library, modules, losses, callbacks = libraries(
            PACKAGE, *(f"{PACKAGE}.{name}" for name in ("modules", "losses", "callbacks"))
        )
        if task.loss.name != "multiple_negatives" or task.sparse.query_weights:
            raise BertJaxError(
                "only loss.name=multiple_negatives without weights of tokens in queries can be compared; leave "
                "loss.name and model.query_weights out"
            )
        self.task, self.config, self.pad, self.step = task, config, pad, 0
        encoder = modules.Transformer(
            config.init, transformer_task="fill-mask", config_kwargs=config.model.dropout_rates
        )
        pooling = modules.SpladePooling(task.sparse.pooling, activation_function=task.sparse.activation)
        self.model = library.SparseEncoder(modules=[encoder, pooling], device="cpu")
        base = losses.SparseMultipleNegativesRankingLoss(self.model, scale=task.settings.scale)
        self.loss = losses.SpladeLoss(self.model, base, task.document_weight, task.query_weight)
        self.schedule = callbacks.SpladeRegularizerWeightSchedulerCallback(self.loss)
        self.schedule.on_train_begin(None, SimpleNamespace(max_steps=config.steps), None)

    def loss_of(self, pieces: Sequence[EncodedWindow]):
        self.schedule.on_step_begin(None, SimpleNamespace(global_step=self.step), None)
        self.step += 1
        size = self.task.texts_per_group
        return sum(self.loss([self.tokens(pieces[n::size]) for n in range(size)]).values())

    def outputs(self, pieces: Sequence[EncodedWindow]) -> Iterator[SparseVector]:
        """Return the vector of each piece."""
        vectors = self.model(self.tokens(pieces))["sentence_embedding"]
        return iter(self.task.keep_predictions(vectors.numpy()))
