"""`bert-jax bench size`: a published size of any family with random weights, compared with `transformers`.

Two figures are measured: the hidden states of some rows, and a fine-tuning step of a classifier with the family's own
dropout. Both sides open the same directory and get the same tokens, without padding. `transformers` computes all rows
in one batch; ours uses the batches that its inference makes of as many texts.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import Any

import jax
import numpy as np

import bert_jax
from bert_jax.bench.profile import name_operations, profile, show
from bert_jax.bench.torch_training import Updates, quiet_transformers
from bert_jax.bench.train import methods_of
from bert_jax.bench.turns import Limits, Machine, Ratio, Turn, compared, contending, describe, ratio
from bert_jax.core.files import to_json
from bert_jax.finetuning.finetune_task import Finetuning
from bert_jax.hub import directory as hub
from bert_jax.hub.families import FAMILIES, sized
from bert_jax.hub.layout import Layout
from bert_jax.inference import programs
from bert_jax.inference.batching import row_rungs, tokens_in_batch
from bert_jax.predictions.kind import kind_of
from bert_jax.training.run_config import OptimizerConfig, RunConfig
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import constants_of, initial_state
from bert_jax.training.step import make_step

LABELS = ("bad", "good")
RUN = RunConfig(optimizer=OptimizerConfig(warmup_steps=1))
FIGURES = {"states": "hidden states", "step": "a fine-tuning step"}


@dataclass(frozen=True)
class Rows:
    """The number of rows for each figure, and their length in tokens."""

    of_states: int = 32
    of_step: int = 8
    length: int = 128

    def batch(self, figure: str, vocab_size: int) -> dict[str, np.ndarray]:
        count = self.of_states if figure == "states" else self.of_step
        random = np.random.RandomState(0)
        # Ids from 1,000 on are words in every family's vocabulary.
        tokens = random.randint(min(1000, vocab_size // 2), vocab_size, (count, self.length))
        read = {"tokens": tokens, "segments": np.zeros_like(tokens), "mask": np.ones_like(tokens)}
        return {name: array.astype(np.int32) for name, array in read.items()}

    def parts(self, batch: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        """Split the rows of a batch into the batches that our inference uses."""
        most = row_rungs(self.length, tokens_in_batch())[-1]
        for start in range(0, self.of_states, most):
            yield {name: array[start : start + most] for name, array in batch.items()}

    def labels(self) -> np.ndarray:
        return np.arange(self.of_step, dtype=np.int32) % len(LABELS)


def write(size: str, directory: str) -> None:
    """Write a classifier of this size with random weights."""
    name, config = sized(size)
    layout = Layout(config, FAMILIES[name or "bert"], ("classify",), LABELS)
    hub.save(directory, layout, jax.device_get(jax.jit(layout.init)(jax.random.key(0))))


class Ours:
    def __init__(self, directory: str, rows: Rows):
        self.model = model = bert_jax.load(directory, tokenizer=False)
        self.rows, vocab_size = rows, model.config.vocab_size
        self.read = list(rows.parts(rows.batch("states", vocab_size)))
        task, mesh = Finetuning(model.layout, kind_of(model.layout)), make_mesh(RUN.mesh)
        weight = np.ones(rows.of_step, np.float32)
        self.batch = rows.batch("step", vocab_size) | {"labels": rows.labels(), "weight": weight}
        self.state = initial_state(task, RUN, mesh, model.params)
        self.constants = constants_of(task, RUN, mesh)
        self.take_step = make_step(task, RUN, mesh)

    def states(self) -> np.ndarray:
        program = programs.hidden_states(self.model.config)
        return np.concatenate([program(self.model.rounded, part) for part in self.read])

    def step(self) -> float:
        self.state, measured = self.take_step(self.state, self.batch, self.constants)
        return float(jax.block_until_ready(measured)["gradient_norm"])


class Theirs:
    def __init__(self, directory: str, rows: Rows):
        self.torch, transformers = quiet_transformers(0)
        self.encoder = transformers.AutoModel.from_pretrained(directory).eval()
        self.classifier = transformers.AutoModelForSequenceClassification.from_pretrained(directory).train()
        self.updates = Updates(self.torch, self.classifier, RUN.optimizer, RUN.steps)
        vocab_size = self.encoder.config.vocab_size
        self.read = self.inputs(rows.batch("states", vocab_size))
        labels = self.torch.from_numpy(rows.labels()).long()
        self.batch = self.inputs(rows.batch("step", vocab_size)) | {"labels": labels}

    def inputs(self, batch: dict) -> dict[str, Any]:
        names = {"tokens": "input_ids", "mask": "attention_mask"}
        return {theirs: self.torch.from_numpy(batch[ours]).long() for ours, theirs in names.items()}

    def states(self) -> np.ndarray:
        with self.torch.inference_mode():
            return self.encoder(**self.read).last_hidden_state.numpy()

    def step(self) -> float:
        loss = self.classifier(**self.batch).loss
        self.updates.apply(loss)
        return loss.item()


def measure(sizes: Sequence[str], rows: Rows, limits: Limits, as_json: bool) -> Iterator[str]:
    """Yield the result of each size as soon as it is there, as text or as a line of JSON."""
    for size in sizes:
        with tempfile.TemporaryDirectory() as directory:
            write(size, directory)
            result = compare(directory, rows, limits)
        facts = {"size": size, "rows": asdict(rows)}
        yield to_json(facts | result) if as_json else in_words(size, rows, result)


def compare(directory: str, rows: Rows, limits: Limits) -> dict[str, Any]:
    machine, turns, results = Machine(), list[Turn](), dict[str, Any]()
    makers = {"ours": (methods_of, Ours, directory, rows), "theirs": (methods_of, Theirs, directory, rows)}
    with contending(makers) as contenders:
        first = {name: contender("states")[0] for name, contender in contenders.items()}
        results["apart"] = float(np.abs(first["ours"] - first["theirs"]).max())
        for contender in contenders.values():
            contender("step")  # compile before timing
        for figure in FIGURES:
            seconds: dict[str, list[float]] = {name: [] for name in contenders}
            calls = compared(contenders, repeat((figure,)), limits, lambda _, turn: turn.seconds, twice=True)
            for name, _, turn in calls:
                seconds[name].append(turn.seconds)
                turns.append(turn)
            medians = {name: float(np.median(times)) for name, times in seconds.items()}
            results[figure] = medians | {"ratio": asdict(ratio(seconds["ours"], seconds["theirs"]))}
    return results | {"machine": machine.during(turns)}


def in_words(size: str, rows: Rows, result: dict) -> str:
    lines = [f"{size}, {rows.length} tokens a row, float32, random weights"]
    for figure, what in FIGURES.items():
        medians, count = result[figure], rows.of_states if figure == "states" else rows.of_step
        lines.append(
            f"  {what} of {count} rows: {medians['ours']:.3f} s, transformers {medians['theirs']:.3f} s; ours is "
            f"{Ratio(**medians['ratio'])} times as fast"
        )
    lines.append(f"  hidden states differ by at most {result['apart']:.1e}")
    return "\n".join([*lines, "  " + describe(result["machine"])])


def profile_size(size: str, rows: Rows, figure: str, calls: int, picture: str, as_json: bool) -> str:
    """Show where the time of one figure goes: as a picture, and as text or JSON."""
    name_operations()
    with tempfile.TemporaryDirectory() as directory:
        write(size, directory)
        ours = Ours(directory, rows)
    take: Callable[[], object] = getattr(ours, figure)
    count = rows.of_states if figure == "states" else rows.of_step
    title = f"{FIGURES[figure]} of {size}, {count} x {rows.length}, float32"
    return show(profile(title, take, calls, "float32", frozenset({count * rows.length})), picture, as_json)
