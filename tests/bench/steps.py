"""`step`: a pre-training step on made-up rows without padding, compared with torch."""

from collections.abc import Callable, Sequence
from itertools import repeat

import numpy as np

from bert_jax import tasks
from bert_jax.bench.step_speed import Step, synthetic_batch
from bert_jax.bench.timing import Machine, Turn
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.layout import Layout
from bert_jax.hub.published_form import to_hf_config
from bert_jax.training.run_config import RunConfig
from bert_jax.training.task import Outline
from tests.bench.comparison import Comparison, Row, dtype_of, dtype_ratios
from tests.bench.libraries import libraries
from tests.bench.torch_training import Updates
from tests.bench.turns import OURS, Limits, interleaved, is_ours, running_processes

# Contender -> whether torch chooses the operations that it computes in bfloat16, and whether it compiles the model.
TORCH = {"torch": (False, False), "torch-autocast": (True, False), "torch-autocast-compiled": (True, True)}


def open_outline(spec: str, overrides: Sequence[str]) -> Outline:
    return tasks.outline_run(tasks.load_config(spec, overrides)[1])


def our_step(spec: str, overrides: Sequence[str]) -> Callable[[], None]:
    outline = open_outline(spec, overrides)
    return Step(outline, outline.phases[0]).take


def torch_step(spec: str, overrides: Sequence[str], autocast: bool, compiled: bool) -> Callable[[], None]:
    """Return a function that takes the same step with `transformers` on torch, with torch's fused attention."""
    torch, transformers = libraries("torch", "transformers")
    outline = open_outline(spec, overrides)
    config, encoder = outline.config, outline.task.layout.config
    batch = synthetic_batch(outline.phases[0].features, encoder.vocab_size)
    if batch.get("segment_ids", np.ones(1)).max() > 1:
        raise BertJaxError(
            "transformers takes a row as one sequence; set --config.data.sentence_objective=next_sentence or "
            "--config.data.max_documents_per_row=1"
        )
    labels = np.full(batch["input_ids"].shape, -100)
    np.put_along_axis(labels, batch["target_positions"], batch["targets"], axis=1)
    arrays = {"input_ids": batch["input_ids"], "labels": labels}
    if "labels" in batch:
        arrays |= {"token_type_ids": batch["token_type_ids"], "next_sentence_label": batch["labels"]}
    layout = outline.task.layout
    settings = transformers.AutoConfig.for_model(**to_hf_config(Layout(encoder, layout.family, layout.heads)))
    auto = transformers.AutoModelForPreTraining if "labels" in batch else transformers.AutoModelForMaskedLM
    return torch_updates(torch, auto.from_config(settings), arrays, config, autocast, compiled)


def torch_updates(
    torch, model, arrays: dict, config: RunConfig, autocast: bool, compiled: bool
) -> Callable[[], None]:
    """Return a function that updates a model of `transformers` by these arrays."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device).train()
    updates = Updates(torch, model, config.optimizer, config.steps)
    forward = torch.compile(model) if compiled else model
    inputs = {name: torch.from_numpy(array.astype(np.int64)).to(device) for name, array in arrays.items()}

    def take() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            loss = forward(**inputs).loss
        updates.apply(loss)
        loss.item()

    return take


def compare_steps(
    spec: str, overrides: Sequence[str], dtypes: Sequence[str], against: Sequence[str], limits: Limits
) -> Comparison:
    """Compare our step, in each of the dtypes, with each of the others, which run one after the other."""
    makers = {f"{OURS} {dtype}": (our_step, spec, [*overrides, f"model.dtype={dtype}"]) for dtype in dtypes}
    machine, turns, rows = Machine(), list[Turn](), list[Row]()
    shape = open_outline(spec, overrides).phases[0].features["input_ids"][0]
    what = f"a pre-training step of {spec}, {shape[0]} x {shape[1]}"
    with running_processes(makers) as ours:
        for name in against:
            # One at a time, because each holds a model and its optimizer.
            with running_processes({name: (torch_step, spec, list(overrides), *TORCH[name])}) as other:
                contenders = ours | other
                for contender in contenders.values():
                    contender()  # compiles
                taken: dict[str, list[Turn]] = {name: [] for name in contenders}
                for contender, _, turn in interleaved(contenders, repeat(()), limits, twice=True):
                    taken[contender].append(turn)
            seconds = {contender: [turn.seconds for turn in some] for contender, some in taken.items()}
            turns += [turn for some in taken.values() for turn in some]
            medians = {contender: f"{np.median(some):.3g}" for contender, some in seconds.items()}
            figures = {dtype_of(mine): median for mine, median in medians.items() if is_ours(mine)}
            rows.append(Row(what, figures, f"{name} {medians[name]} s", dtype_ratios(seconds, name), "s"))
    return Comparison(rows, machine.load_during(turns))
