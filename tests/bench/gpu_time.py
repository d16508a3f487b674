"""`gpu --time`: training steps and embedding on this GPU, beside torch, within a given time.

Each case runs in a process of its own: it has the memory of the device for itself, and a crash costs that case alone.
On a CPU the cases are tiny, which shows no more than that they run. FLOPs are those of real tokens.
"""

import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import jax
import numpy as np

from bert_jax.bench.step_speed import Step
from bert_jax.bench.timing import rounded, timed, timed_rounds
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json, write_json
from bert_jax.core.terminal import print_line
from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.inference.embedder import Embedder
from bert_jax.models.cost import layer_flops
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.kernels import attention
from bert_jax.report.plots import ACCENT, PALE, put_legend_above, save_plot
from bert_jax.report.prediction_page import markdown_table
from bert_jax.tasks import load_config
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.chips import PEAKS
from bert_jax.training.task import make_outline
from tests.bench.finetune import AS_TRANSFORMERS
from tests.bench.libraries import libraries
from tests.bench.steps import open_outline, torch_step, torch_updates
from tests.bench.texts import sentence_transformers, torch_device
from tests.bench.turns import OURS
from tests.support.project import ROOT

TORCH = "torch"
ONE_GPU = {"CUDA_VISIBLE_DEVICES": "0"}
TINY = ("model.hidden_size=64", "model.num_hidden_layers=3", "model.num_attention_heads=2",
        "model.intermediate_size=128", "model.vocab_size=1000")  # fmt: skip
TEXTS, WORDS = 6_000, 81  # texts, and their mean number of words
WHOLE, TINY_LENGTH = 512, 64  # the most tokens of a text


@dataclass(frozen=True)
class Place:
    """Where a case is measured, and in which sizes."""

    folder: Path
    is_tiny: bool

    @property
    def dtype(self) -> str:
        return "float32" if self.is_tiny else "bfloat16"


@dataclass(frozen=True)
class Case(ABC):
    @property
    @abstractmethod
    def name(self) -> str:
        """What is measured."""

    @abstractmethod
    def ours(self, place: Place) -> tuple[Callable, float]:
        """Return a function to time, and the FLOPs of its real tokens."""

    @abstractmethod
    def torch(self, place: Place) -> Callable | None:
        """Return what does the same in torch, compiled and in bfloat16; None if that is measured in another case."""


@dataclass(frozen=True)
class PretrainingCase(Case):
    """A step on full rows, each one text or one pair, with the dropout that the family was published with."""

    size: str
    rows: int
    length: int

    @property
    def name(self) -> str:
        return f"pre-train {self.size}, {self.rows} x {self.length}"

    def config(self, place: Place) -> tuple[str, list[str]]:
        rows, length = (2, TINY_LENGTH) if place.is_tiny else (self.rows, self.length)
        data = {"batch_size": rows, "lengths": length, "length_ratios": 1, "max_documents_per_row": 1}
        overrides = [f"data.{name}={value}" for name, value in data.items()]
        overrides.append("optimizer.schedule=linear")  # that of torch's side
        return f"{ROOT / 'configs/pretrain.py'}:{self.size}", [
            *overrides, f"model.dtype={place.dtype}", *(TINY if place.is_tiny else ()),
        ]  # fmt: skip

    def ours(self, place: Place) -> tuple[Callable, float]:
        outline = open_outline(*self.config(place))
        step = Step(outline, outline.phases[0])
        return step.take, outline.task.flops(*step.batch["input_ids"].shape)

    def torch(self, place: Place) -> Callable:
        return torch_step(*self.config(place), True, True)


@dataclass(frozen=True)
class TuningCase(Case):
    """A step of a classifier of BERT-base on texts of mixed lengths."""

    batching: str

    @property
    def name(self) -> str:
        return f"classify with base, 64 texts, {self.batching}"

    def open(self, place: Place):
        """Return the outline of the fine-tuning, its most frequent phase, a batch of that, and the lengths of its
        texts."""
        overrides = {
            "init": write_model(place), "data.train": write_texts(place), "data.batching": self.batching,
            "data.max_length": longest(place), "data.batch_size": 4 if place.is_tiny else 64, "steps": 20,
            "model.dtype": place.dtype, "method": "finetune",
        }  # fmt: skip
        given = [*AS_TRANSFORMERS, *(f"{name}={value}" for name, value in overrides.items())]
        module, config = load_config(str(ROOT / "configs/classify.py"), given)
        task, data, config = module.open(config, hub.ModelDirectories())
        outline = make_outline(task, data, config)
        phase = max(outline.phases, key=lambda phase: phase.share)
        step = next(step for step in range(config.steps) if data.row_length(step) == phase.length)
        (batch,) = data.batches(step, step + 1, 0, 1)
        return outline, phase, batch, [len(data.train[i]) for i in data.chosen[step]]

    def ours(self, place: Place) -> tuple[Callable, float]:
        outline, phase, batch, lengths = self.open(place)
        step = Step(outline, phase)
        step.batch = batch
        return step.take, 3 * forward_flops(outline.task.layout.config, lengths)

    def torch(self, place: Place) -> Callable | None:
        if self.batching == "packed":
            return None
        outline, _, batch, _ = self.open(place)
        torch, transformers = libraries("torch", "transformers")
        auto = transformers.AutoModelForSequenceClassification
        model = auto.from_pretrained(write_model(place), num_labels=2)
        names = ("input_ids", "token_type_ids", "attention_mask", "labels")
        return torch_updates(torch, model, {name: batch[name] for name in names}, outline.config, True, True)


@dataclass(frozen=True)
class EmbeddingCase(Case):
    """The vectors of texts of mixed lengths, from text to numbers. Torch is not compiled: each length would be."""

    name = f"embed {TEXTS:,} texts with base"

    def ours(self, place: Place) -> tuple[Callable, float]:
        texts = make_texts(place)
        model = Embedder.load(write_model(place), pooling="mean", dtype=place.dtype)
        lengths = [min(len(text.split()) + 2, longest(place)) for text in texts]
        return partial(model.encode, texts), forward_flops(model.config, lengths)

    def torch(self, place: Place) -> Callable:
        return partial(sentence_transformers(write_model(place), place.dtype), make_texts(place))


# The groups by importance, the cheapest first within each.
GROUPS: list[list[Case]] = [
    [PretrainingCase("base", 256, 128), PretrainingCase("base", 64, 512)],
    [TuningCase("packed"), TuningCase("padded"), EmbeddingCase(), PretrainingCase("large", 64, 512)],
    [PretrainingCase("modernbert-base", 32, 1024), PretrainingCase("deberta-v3-base", 32, 512)],
]
CASES = {case.name: case for group in GROUPS for case in group}


def longest(place: Place) -> int:
    return TINY_LENGTH if place.is_tiny else WHOLE


def forward_flops(config: EncoderConfig, lengths: Sequence[int]) -> float:
    return config.num_hidden_layers * sum(layer_flops(config, length, length) for length in lengths)


def make_words(vocab_size: int) -> list[str]:
    return [f"w{number}" for number in range(vocab_size - 5)]


def encoder_config(place: Place) -> EncoderConfig:
    if not place.is_tiny:
        return EncoderConfig()
    sizes = (setting.removeprefix("model.").split("=") for setting in TINY)
    return EncoderConfig(max_position_embeddings=TINY_LENGTH, **{name: int(size) for name, size in sizes})


def write_model(place: Place) -> str:
    """Return the directory of an encoder with random weights and made-up words, which is written once."""
    directory = place.folder / "model"
    if not directory.exists():
        config = encoder_config(place)
        layout = Layout(config, FAMILIES["bert"], ("mlm",))
        entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *make_words(config.vocab_size)]
        params = jax.device_get(jax.jit(layout.init)(jax.random.key(0)))
        hub.save_model(directory, layout, params, WordPiece.from_vocabulary(entries))
    return str(directory)


def make_texts(place: Place) -> list[str]:
    """Make texts of made-up words, most of them short, some of them longer than a model reads."""
    random, mean = np.random.default_rng(0), longest(place) * WORDS // WHOLE
    words = np.array(make_words(encoder_config(place).vocab_size))
    counts = random.lognormal(np.log(mean) - 0.9**2 / 2, 0.9, 100 if place.is_tiny else TEXTS)
    return [" ".join(random.choice(words, max(int(count), 2))) for count in counts]


def write_texts(place: Place) -> str:
    path = place.folder / "texts.csv"
    lines = [f"{text},{('bad', 'good')[number % 2]}" for number, text in enumerate(make_texts(place))]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return str(path)


@contextmanager
def noted_kernels() -> Iterator[set[str]]:
    """Note the attention kernels of the programs that are traced meanwhile."""
    names, choose = set[str](), attention.choose_kernel

    def note(*request) -> str:
        names.add(name := choose(*request))
        return name

    with mock.patch.object(attention, "choose_kernel", note):
        yield names


def measure(name: str, side: str, folder: Path) -> dict | None:
    """Measure a case in this process; None if the side does not have it."""
    case, place = CASES[name], Place(folder, jax.default_backend() != "gpu")
    result: dict = {"device": jax.devices()[0].device_kind, "tiny": place.is_tiny, "jax": jax.__version__}
    with noted_kernels() as kernels:
        if side == TORCH:
            run, result["torch"] = case.torch(place), libraries("torch")[0].__version__
        else:
            run, result["teraflop"] = case.ours(place)
            result["teraflop"] /= 1e12
        if run is None:
            return None
        result["first_call_seconds"] = timed(run)[1].seconds
    if side == OURS:
        result["attention"] = "+".join(sorted(kernels))
    result["all_seconds"] = [turn.seconds for turn in timed_rounds(run)]
    return result | {"seconds": float(np.median(result["all_seconds"]))}


def measure_apart(name: str, side: str, folder: Path, seconds: float) -> dict | None:
    """Measure a case in a process of its own, which may take so many seconds."""
    command = [sys.executable, "-m", __name__, name, side, str(folder)]
    try:
        ran = subprocess.run(
            command, env=ONE_GPU | os.environ, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise BertJaxError("no time was left to finish it; set more --minutes") from error
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        raise BertJaxError(f"exit code {ran.returncode}: {last}")
    return json.loads(ran.stdout.splitlines()[-1])


def time_cases(
    output: str, minutes: float, groups: Sequence[Sequence[Case]] = GROUPS, run: Callable = measure_apart
) -> str:
    """Measure what the minutes allow; write numbers and picture after each case; return a table."""
    folder, end = Path(output).resolve(), time.monotonic() + 60 * minutes
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, dict]] = {}
    for name, side in ((case.name, side) for group in groups for side in sides() for case in group):
        try:
            if (left := end - time.monotonic()) <= 0:
                raise BertJaxError("no time was left for it; set more --minutes")
            result = run(name, side, folder, left)
        except Exception as error:  # the other cases go on
            result = {"error": " ".join(str(error).split())[:300]}
        if result:
            results.setdefault(name, {})[side] = result
            print_line(f"{name}, {side}: {describe(result)}")
            write_json(folder / "gpu.json", results)
            draw_cases(folder / "gpu.png", results)
    return "\n".join(markdown_table(HEADER, list(map(table_row, results, results.values()))))


def sides() -> list[str]:
    with suppress(BertJaxError):
        return [OURS, TORCH] if torch_device() == "cuda" else [OURS]
    return [OURS]


def describe(result: dict) -> str:
    return result.get("error") or f"{write_time(result)}, {result['device']}"


def write_time(result: dict) -> str:
    return UNKNOWN if "error" in result else f"{1e3 * result['seconds']:.1f} ms"


UNKNOWN = "not measured"
HEADER = ["case", "ms", "TFLOP/s", "of the peak", "attention", "torch, ms", "times as long"]


def table_row(name: str, results: dict[str, dict]) -> list[str]:
    ours, torch = results.get(OURS, {}), results.get(TORCH, {})
    seconds, theirs = ours.get("seconds"), torch.get("seconds")
    speed, peak = teraflops(results, OURS), PEAKS.get(ours.get("device", ""))
    return [
        name + " (tiny)" * ours.get("tiny", False),
        rounded(1e3 * seconds) if seconds else UNKNOWN,
        rounded(speed),
        f"{1e12 * speed / peak:.1%}" if speed and peak else "-",
        ours.get("attention") or "-",
        rounded(1e3 * theirs) if theirs else UNKNOWN if torch else "-",
        f"{theirs / seconds:.2f}" if seconds and theirs else "-",
    ]


def teraflops(results: dict[str, dict], side: str) -> float | None:
    """Return the TFLOP/s of a side's real tokens; None if they were not measured."""
    work, seconds = results.get(OURS, {}).get("teraflop"), results.get(side, {}).get("seconds")
    return work / seconds if work and seconds else None


def draw_cases(path: Path, results: dict[str, dict[str, dict]]) -> None:
    device = next((r["device"] for sides in results.values() for r in sides.values() if "device" in r), "")

    def bars(axes) -> None:
        places = np.arange(len(results))[::-1]
        for shift, side, colour, hatch in ((0.2, OURS, ACCENT, ""), (-0.2, TORCH, PALE, "////")):
            speeds = [teraflops(sides, side) or 0 for sides in results.values()]
            texts = [write_time(sides[side]) if side in sides else "" for sides in results.values()]
            drawn = axes.barh(
                places + shift, speeds, 0.38, color=colour, hatch=hatch, edgecolor="white", label=side
            )
            axes.bar_label(drawn, texts, fontsize=7, padding=2)
        axes.set_yticks(places, list(results))
        axes.margins(x=0.15)
        axes.set_xlabel(f"TFLOP/s of real tokens, {device}", fontsize=9)
        put_legend_above(axes, 2)

    save_plot(path, (9, 0.5 * len(results) + 1.2), bars)


if __name__ == "__main__":
    name, side, folder = sys.argv[1:]
    print(to_json(measure(name, side, Path(folder))))
