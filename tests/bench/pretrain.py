"""`pretrain`: the losses of a pre-training, compared with transformers on the same batches and recipe.

Our run is that of `bert-jax train` with the same flags: it is started, resumed, or taken as it is if it is complete.
The run of transformers starts from the same initial values, is evaluated on the same rows, and decodes only the masked
positions, as ours does.
"""

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.bench.timing import Machine, timed
from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.stream import Stream
from bert_jax.hub import model_directory as hub
from bert_jax.tasks import load_config
from bert_jax.tasks.pretrain import Config, PretrainTask
from bert_jax.training.log import validation_lines
from bert_jax.training.opened_run import open_run
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import initial_state
from bert_jax.training.workdir import Workdir
from tests.bench.comparison import Comparison, Row
from tests.bench.torch_training import Updates, quiet_transformers

METRICS = "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"


def compare_pretraining(spec: str, overrides: Sequence[str], workdir: str) -> Comparison:
    """Return a row for each validation of the runs."""
    module, config = load_config(spec, overrides)
    if not isinstance(config, Config) or config.init:
        raise BertJaxError(f"{spec} does not pre-train from random values; name such a config, without init")
    run = open_run(module.open, config)
    task, data, config = run.task, run.data, run.config
    if task.initializes_from_data:
        raise BertJaxError("both sides must start from random embeddings; set --config.embedding_init=random")
    theirs, machine = TorchPretraining(task, data, config), Machine()
    _, our_turn = timed(run.train, workdir)
    their_lines, their_turn = timed(lambda: list(theirs.train()))
    rows = [
        Row(
            f"{spec}, {mine['step']:,} steps: {', '.join(METRICS)}",
            {config.model.dtype: measured(mine)},
            f"transformers, same initial values and batches: {measured(other)}",
        )
        for mine, other in zip(validation_lines(Workdir(workdir).metrics), their_lines, strict=True)
    ]
    return Comparison(rows, machine.load_during([our_turn, their_turn]))


def measured(line: dict) -> str:
    return ", ".join(f"{line[name]:.4f}" for name in METRICS)


class TorchPretraining:
    def __init__(self, task: PretrainTask, data: Stream, config: Config):
        if task.layout.heads != ("mlm", "nsp"):
            raise BertJaxError(
                "transformers learns next-sentence pairs; set --config.data.sentence_objective=next_sentence"
            )
        self.torch, transformers = quiet_transformers(config.seed)
        self.data, self.config = data, config
        with tempfile.TemporaryDirectory() as directory:
            state = initial_state(task, config, make_mesh(config.mesh))
            hub.save_model(directory, task.layout, jax.device_get(state.params))
            self.model = transformers.BertForPreTraining.from_pretrained(directory)

    def train(self) -> Iterator[dict]:
        """Train, and yield the metrics on the validation set at the same steps as our run."""
        config = self.config
        updates = Updates(self.torch, self.model, config.optimizer, config.steps)
        self.model.train()
        for step, batch in enumerate(self.data.batches(0, config.steps, 0, 1), 1):
            updates.apply(self.measure(batch)[0])
            if step == config.steps or step % config.log.evaluate_every == 0:
                yield {"step": step} | self.evaluate(self.data.row_length(step - 1))

    def evaluate(self, length: int) -> dict[str, float]:
        self.model.eval()
        total = np.zeros((len(METRICS), 2))
        with self.torch.no_grad():
            for n, batch in enumerate(self.data.validation_batches(length, 0, 1)):
                if n == self.config.log.max_eval_batches > 0:
                    break
                total += self.measure(batch)[1]
        self.model.train()
        return dict(zip(METRICS, (total[:, 0] / total[:, 1]).tolist(), strict=True))

    def measure(self, batch: dict[str, np.ndarray]) -> tuple[Any, np.ndarray]:
        """Return the training loss, and [total, weight] for each of METRICS."""
        torch = self.torch
        given = {name: torch.from_numpy(np.asarray(value, np.int64)) for name, value in batch.items()}
        hidden, pooled = self.model.bert(
            given["input_ids"], given["attention_mask"], given["token_type_ids"], return_dict=False
        )
        row, column = (given["target_weights"] > 0).nonzero(as_tuple=True)
        words, pairs = self.model.cls(hidden[row, given["target_positions"][row, column]], pooled)
        real = given["label_weights"] > 0
        objective, sums = 0, []
        for logits, labels in ((words, given["targets"][row, column]), (pairs[real], given["labels"][real])):
            loss, count = torch.nn.functional.cross_entropy(logits, labels), len(labels)
            right = (logits.argmax(-1) == labels).sum().item()
            sums += [(loss.item() * count, count), (right, count)]
            objective += loss
        return objective, np.array(sums)
