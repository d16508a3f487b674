"""`bert-jax bench train`: time a pre-training step on synthetic batches, and compare it with torch.

FLOPs are those of models/cost.py. Steps are timed one by one, in turn with those of torch.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product, repeat

import jax
import numpy as np

from bert_jax.bench.libraries import libraries
from bert_jax.bench.profile import name_operations, profile, show
from bert_jax.bench.speeds import matmul_flops_per_second, memory_bytes_per_second
from bert_jax.bench.torch_training import Updates
from bert_jax.bench.turns import Limits, Machine, Ratio, Turn, compared, contending, describe, ratio, timed
from bert_jax.core.files import to_json
from bert_jax.data.corpus.config import DataConfig, Examples
from bert_jax.hub.layout import Layout
from bert_jax.models.config import EncoderConfig
from bert_jax.models.cost import pre_training_flops
from bert_jax.pod import hlo
from bert_jax.tasks.pretrain import Config, Pretraining
from bert_jax.training.chips import peak_of
from bert_jax.training.run_config import MeshConfig, OptimizerConfig
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import constants_of, initial_state
from bert_jax.training.step import make_step


@dataclass(frozen=True)
class StepShape:
    """The settings of the step to measure."""

    size: str = "base"
    batch: int = 8
    length: int = 128
    dtype: str = "float32"
    attention: str = "auto"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    packs: int = 1
    accumulate: int = 1
    remat: str = "none"
    unroll: bool = False

    def config(self) -> Config:
        names = ("dtype", "attention", "dropout", "attention_dropout", "remat", "unroll")
        computed = {name: getattr(self, name) for name in names}
        examples: Examples = "full_sentences" if self.packs > 1 else "next_sentence"
        return Config(
            model=EncoderConfig.named(self.size, max_positions=max(512, self.length), **computed),
            data=DataConfig(
                batch_size=self.batch,
                lengths=(self.length,),
                shares=(1.0,),
                examples=examples,
                packs=self.packs,
            ),
            mesh=MeshConfig(gradient_accumulation_steps=self.accumulate),
            optimizer=OptimizerConfig(warmup_steps=1),
        )

    def words(self) -> str:
        return (
            f"{self.size}, {self.batch} x {self.length}, {self.dtype}, attention {self.attention}, dropout "
            f"{self.dropout} and {self.attention_dropout}"
        )


def synthetic_batch(shape: StepShape, vocab_size: int) -> dict[str, np.ndarray]:
    """Make a batch of random words without padding, so that every token counts."""
    random = np.random.default_rng(0)
    B, L = shape.batch, shape.length
    K = DataConfig().targets(L)
    batch = {
        "tokens": random.integers(1000, vocab_size, (B, L)),
        "segments": np.repeat([[0, 1]], L // 2, axis=1).repeat(B, axis=0),
        "mask": np.ones((B, L)),
        "target_positions": np.sort(random.permuted(np.tile(np.arange(L), (B, 1)), axis=1)[:, :K]),
        "targets": random.integers(1000, vocab_size, (B, K)),
    }
    if shape.packs > 1:
        starts = np.arange(shape.packs) * (L // shape.packs)
        batch["packs"] = np.tile(np.searchsorted(starts, np.arange(L), side="right"), (B, 1))
        batch["cls_positions"] = np.tile(starts, (B, 1))
        batch["segments"] = np.zeros((B, L))
    else:
        batch["labels"] = random.integers(0, 2, B)
    batch = {name: value.astype(np.int32) for name, value in batch.items()}
    batch["target_weight"] = np.ones((B, K), np.float32)
    if shape.packs == 1:
        batch["weight"] = np.ones(B, np.float32)
    return batch


class OurStep:
    """Our step, compiled ahead of its first call."""

    def __init__(self, shape: StepShape):
        self.shape, config = shape, shape.config()
        task, mesh = Pretraining.of(config), make_mesh(config.mesh)
        self.batch = synthetic_batch(shape, config.model.vocab_size)
        self.state = initial_state(task, config, mesh)
        self.constants = constants_of(task, config, mesh)
        lowered = make_step(task, config, mesh).lower(self.state, self.batch, self.constants)
        self.step, turn = timed(lowered.compile)
        self.compile_seconds = turn.seconds

    def take(self) -> None:
        self.state, measured = self.step(self.state, self.batch, self.constants)
        jax.block_until_ready(measured)

    def facts(self) -> dict:
        """Return what is known of the step without timing it, and the speed of this machine's products and memory."""
        memory, device, shape = self.step.memory_analysis(), jax.devices()[0], self.shape
        targets = self.batch["targets"].shape[1]
        return {
            "device": f"{jax.device_count()} x {device.device_kind}",
            "step": vars(shape),
            "compile_seconds": self.compile_seconds,
            "temporary_bytes": memory.temp_size_in_bytes if memory else None,
            "devices": jax.device_count(),
            "peak_flops_per_second": peak_of(device.device_kind),
            "flops_per_step": pre_training_flops(shape.config().model, shape.batch, shape.length, targets),
            "matmul_flops_per_second": matmul_flops_per_second(shape.dtype),
            "bytes_per_step": hlo.read(self.step.as_text() or "").traffic,
            "bytes_per_second": memory_bytes_per_second(),
        }


class TorchStep:
    """The same step with `transformers` on torch, with torch's fused attention."""

    def __init__(self, shape: StepShape, autocast: bool, compiled: bool):
        torch, transformers = libraries("torch", "transformers")
        self.torch, self.autocast, config = torch, autocast, shape.config()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        published = Layout(config.model, heads=("mlm", "nsp")).published_config()
        settings = transformers.BertConfig(**published, attn_implementation="sdpa")
        self.model = transformers.BertForPreTraining(settings).to(self.device)
        self.model.train()
        self.updates = Updates(torch, self.model, config.optimizer, config.steps)
        self.forward = torch.compile(self.model) if compiled else self.model
        batch = synthetic_batch(shape, config.model.vocab_size)
        labels = np.full(batch["tokens"].shape, -100)
        np.put_along_axis(labels, batch["target_positions"], batch["targets"], axis=1)
        inputs = {
            "input_ids": batch["tokens"],
            "token_type_ids": batch["segments"],
            "labels": labels,
            # transformers has no packed rows: it takes a row as one sequence.
            "next_sentence_label": batch.get("labels", np.zeros(len(labels))),
        }
        self.inputs = {
            name: torch.from_numpy(np.asarray(array, np.int64)).to(self.device)
            for name, array in inputs.items()
        }

    def take(self) -> None:
        with self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.autocast):
            loss = self.forward(**self.inputs).loss
        self.updates.apply(loss)
        loss.item()


def methods_of(kind: type, *arguments) -> Callable:
    """Create `kind(*arguments)`, and return a contender's function that calls one of its methods by name."""
    step = kind(*arguments)
    return lambda name: getattr(step, name)()


def profile_step(shape: StepShape, steps: int, picture: str, as_json: bool) -> str:
    """Show where the time of a step goes: as a picture, and as text or JSON."""
    name_operations()
    ours = OurStep(shape)
    targets = ours.batch["targets"].shape[1]
    rows = frozenset(shape.batch // shape.accumulate * n for n in (shape.length, targets, shape.packs))
    title = f"a step of {shape.words()}"
    return show(profile(title, ours.take, steps, shape.dtype, rows), picture, as_json)


def measure(shape: StepShape, limits: Limits, against: str | None, as_json: bool) -> str:
    machine, makers = Machine(), {"ours": (methods_of, OurStep, shape)}
    with contending(makers) as contenders:
        ours, turns = contenders["ours"], list[Turn]()
        facts = ours("facts")[0]
        ours("take")
        turns += [ours("take", pause=0)[1] for _ in range(limits.least)]
        results = with_rates(facts, shape, turns)
        variants = product((False, True), (False, True)) if against else ()
        for autocast, compiled in variants:
            with contending({"theirs": (methods_of, TorchStep, shape, autocast, compiled)}) as others:
                first = others["theirs"]("take")[1]
                pair: dict[str, list[Turn]] = {"ours": [], "theirs": []}
                calls = compared(
                    contenders | others, repeat(("take",)), limits, lambda _, turn: turn.seconds, twice=True
                )
                for name, _, turn in calls:
                    pair[name].append(turn)
            turns += pair["ours"] + pair["theirs"]
            name = ("bfloat16 autocast" if autocast else "float32") + (", compiled" if compiled else "")
            results.setdefault("against", {})[name] = {
                "seconds": float(np.median([turn.seconds for turn in pair["theirs"]])),
                "cpu_seconds": float(np.median([turn.cpu for turn in pair["theirs"]])),
                "ours_seconds": float(np.median([turn.seconds for turn in pair["ours"]])),
                "first_seconds": first.seconds,
                "speedup": asdict(ratio(*([turn.seconds for turn in side] for side in pair.values()))),
            }
    results["machine"] = machine.during(turns)
    return to_json(results) if as_json else in_words(results, shape)


def with_rates(facts: dict, shape: StepShape, turns: list[Turn]) -> dict:
    seconds = float(np.median([turn.seconds for turn in turns]))
    flops = facts["flops_per_step"] / facts["devices"]
    peak, matmul = facts["peak_flops_per_second"], facts["matmul_flops_per_second"]
    return facts | {
        "seconds": seconds,
        "cpu_seconds": float(np.median([turn.cpu for turn in turns])),
        "sequences_per_second": shape.batch * shape.packs / seconds,
        "tokens_per_second": shape.batch * shape.length / seconds,
        "flops_per_second": flops / seconds,
        "share_of_peak": flops / seconds / peak if peak else None,
        "share_of_matmul": flops / seconds / matmul,
        # Like preflight's serial bound: first all products, then all memory traffic of the compiled program.
        "predicted_seconds": flops / matmul + facts["bytes_per_step"] / facts["bytes_per_second"],
    }


def in_words(results: dict, shape: StepShape) -> str:
    peak, bytes_ = results["share_of_peak"], results["temporary_bytes"]
    of_peak = "no published peak" if peak is None else f"{peak:.1%} of the peak"
    memory = f", {bytes_ / 2**30:.2f} GiB of temporaries" if bytes_ else ""
    lines = [
        f"{shape.words()}, on {results['device']}",
        f"compile    {results['compile_seconds']:.1f} s{memory}",
        f"step       {results['seconds']:.4f} s, {results['cpu_seconds']:.4f} s of CPU",
        f"rows       {results['sequences_per_second']:,.1f} sequences/s, {results['tokens_per_second']:,.0f} tokens/s",
        f"FLOP/s     {results['flops_per_second'] / 1e9:,.0f} G a device: {of_peak}, {results['share_of_matmul']:.1%} "
        f"of a plain matrix product's {results['matmul_flops_per_second'] / 1e9:,.0f} G",
        f"predicted  {results['predicted_seconds']:.4f} s: the products at that rate, then "
        f"{results['bytes_per_step'] / 1e9:.2f} GB through memory; measured is "
        f"{results['seconds'] / results['predicted_seconds']:.2f} times that",
    ]
    for name, other in results.get("against", {}).items():
        speedup = Ratio(**other["speedup"])
        lines.append(
            f"torch      {name}: {other['seconds']:.4f} s, {other['cpu_seconds']:.4f} s of CPU, first step "
            f"{other['first_seconds']:.1f} s; ours {other['ours_seconds']:.4f} s, {speedup} times as fast "
            f"({speedup.rounds} rounds in turn)"
        )
    return "\n".join([*lines, describe(results["machine"])])
