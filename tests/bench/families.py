"""`families`: published sizes of any family with random weights, compared with `transformers`.

Two figures are measured: the hidden states of some rows, and a fine-tuning step of a classifier with the family's own
dropout. Both sides open the same directory and get the same tokens, without padding. `transformers` computes all rows
in one batch; ours uses the batches that its inference makes of as many texts.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import jax
import numpy as np

import bert_jax
from bert_jax.bench.timing import Machine, Turn
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES, resolve_size
from bert_jax.hub.layout import Layout
from bert_jax.inference.computations import HiddenStates
from bert_jax.inference.engines.jax import CPU_SHAPES
from bert_jax.predictions.kind import require_kind
from bert_jax.training.run_config import OptimizerConfig, RunConfig
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import make_step
from tests.bench.comparison import Comparison, Row, dtype_ratios
from tests.bench.torch_training import Updates, quiet_transformers
from tests.bench.turns import OURS, Limits, interleaved, running_processes

LABELS = ("bad", "good")
RUN = RunConfig(optimizer=OptimizerConfig(warmup_steps=1))
FIGURES = {"states": ("hidden states", 32), "step": ("a fine-tuning step", 8)}  # name -> what it is, rows
LENGTH = 128  # tokens of a row
OUR_NAME, THEIR_NAME = f"{OURS} float32", "transformers"


def write_classifier(size: str, directory: str) -> None:
    """Write a classifier of this size with random weights."""
    name, config = resolve_size(size)
    layout = Layout(config, FAMILIES[name or "bert"], ("classify",), LABELS)
    hub.save_model(directory, layout, jax.device_get(jax.jit(layout.init)(jax.random.key(0))))


def random_rows(rows: int, length: int, vocab_size: int) -> dict[str, np.ndarray]:
    random = np.random.RandomState(0)
    # Ids from 1,000 on are words in every family's vocabulary.
    tokens = random.randint(min(1000, vocab_size // 2), vocab_size, (rows, length))
    read = {
        "input_ids": tokens,
        "token_type_ids": np.zeros_like(tokens),
        "attention_mask": np.ones_like(tokens),
    }
    return {name: array.astype(np.int32) for name, array in read.items()}


def labels_of_rows(rows: int) -> np.ndarray:
    return np.arange(rows, dtype=np.int32) % len(LABELS)


class Ours:
    def __init__(self, directory: str, rows: dict[str, int], length: int):
        self.model = model = bert_jax.load(directory, tokenizer=False)
        vocab_size = model.config.vocab_size
        self.batches = list(inference_batches(random_rows(rows["states"], length, vocab_size)))
        task, mesh = FinetuneTask(model.layout, require_kind(model.layout)), make_mesh(RUN.mesh)
        weight = np.ones(rows["step"], np.float32)
        self.batch = random_rows(rows["step"], length, vocab_size) | {
            "labels": labels_of_rows(rows["step"]),
            "label_weights": weight,
        }
        self.state = initial_state(task, RUN, mesh, model.params)
        self.constants = make_constants(task, RUN, mesh)
        self.train_step = make_step(task, RUN, mesh)

    def states(self) -> np.ndarray:
        engine = self.model.engine
        return np.concatenate([engine.start(HiddenStates(), batch) for batch in self.batches])

    def step(self) -> float:
        self.state, measured = self.train_step(self.state, self.batch, self.constants)
        return float(jax.block_until_ready(measured)["gradient_norm"])


def inference_batches(batch: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Split the rows of a batch into the batches that our inference uses."""
    rows, length = batch["input_ids"].shape
    most = CPU_SHAPES.row_counts(length)[-1]
    for start in range(0, rows, most):
        yield {name: array[start : start + most] for name, array in batch.items()}


class Theirs:
    def __init__(self, directory: str, rows: dict[str, int], length: int):
        self.torch, transformers = quiet_transformers(0)
        self.encoder = transformers.AutoModel.from_pretrained(directory).eval()
        self.classifier = transformers.AutoModelForSequenceClassification.from_pretrained(directory).train()
        self.updates = Updates(self.torch, self.classifier, RUN.optimizer, RUN.steps)
        vocab_size = self.encoder.config.vocab_size
        self.read = self.inputs(random_rows(rows["states"], length, vocab_size))
        labels = self.torch.from_numpy(labels_of_rows(rows["step"])).long()
        self.batch = self.inputs(random_rows(rows["step"], length, vocab_size)) | {"labels": labels}

    def inputs(self, batch: dict) -> dict:
        names = ("input_ids", "attention_mask")
        return {name: self.torch.from_numpy(batch[name]).long() for name in names}

    def states(self) -> np.ndarray:
        with self.torch.inference_mode():
            return self.encoder(**self.read).last_hidden_state.numpy()

    def step(self) -> float:
        loss = self.classifier(**self.batch).loss
        self.updates.apply(loss)
        return loss.item()


def make_side(side: type, directory: str) -> Callable:
    """Return a function that computes a figure, given its name."""
    made = side(directory, {name: rows for name, (_, rows) in FIGURES.items()}, LENGTH)
    return lambda figure: getattr(made, figure)()


def compare_families(sizes: Sequence[str], limits: Limits) -> Comparison:
    machine, turns, rows, notes = Machine(), list[Turn](), list[Row](), list[str]()
    for size in sizes:
        with tempfile.TemporaryDirectory() as directory:
            write_classifier(size, directory)
            makers = {OUR_NAME: (make_side, Ours, directory), THEIR_NAME: (make_side, Theirs, directory)}
            with running_processes(makers) as contenders:
                ours, theirs = (contender("states")[0] for contender in contenders.values())
                notes.append(f"{size}: hidden states differ by at most {np.abs(ours - theirs).max():.1e}")
                for contender in contenders.values():
                    contender("step")  # compile before timing
                for figure, (what, count) in FIGURES.items():
                    seconds: dict[str, list[float]] = {name: [] for name in contenders}
                    for name, _, turn in interleaved(contenders, repeat((figure,)), limits, twice=True):
                        seconds[name].append(turn.seconds)
                        turns.append(turn)
                    mine, other = (f"{np.median(taken):.3g}" for taken in seconds.values())
                    ratios = dtype_ratios(seconds, THEIR_NAME)
                    title = f"{size}, {what} of {count} x {LENGTH}"
                    rows.append(Row(title, {"float32": mine}, f"{THEIR_NAME} {other} s", ratios, "s"))
    return Comparison(rows, machine.load_during(turns), notes)
