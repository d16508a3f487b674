"""The measurements of `bert-jax bench all`: their commands, and how each result becomes rows of the table.

A word of a command may contain a placeholder: {model}, {classifier} and {corpus} are directories, {data} is the
directory of the data sets, {inputs} holds the files that INPUTS makes from them, and {output} is the output directory.
A measurement is left out if a placeholder has no value, or if a file or directory that it names does not exist.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bert_jax.bench import sources

LIBRARIES = {  # value of --against -> the modules that it needs
    "sentence-transformers": ("sentence_transformers",),
    "onnxruntime": ("onnxruntime", "onnx", "torch", "transformers"),
    "transformers": ("torch", "transformers"),
    "transformers-autocast": ("torch", "transformers"),
    "torch": ("torch", "transformers"),
}


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    what: str
    ours: str
    other: str = ""  # the other library and its figure
    ratio: dict | None = None  # the fields of bench.turns.Ratio


@dataclass(frozen=True)
class Measurement:
    name: str
    title: str
    command: str  # what follows `bert-jax bench`
    show: Callable[[str, dict], Iterator[Row]]  # (title, result) -> the rows
    against: tuple[str, ...] = ()
    quick: str = ""  # flags for --quick, which make it short
    needs: tuple[str, ...] = ()  # modules to compare with; if one is missing, the measurement is left out


def text_rows(title: str, result: dict) -> Iterator[Row]:
    ours = result["of"]["bert-jax"]
    what = f"{title}: {result['texts']:,} texts of {result['tokens']:.0f} tokens, ours in {result['dtype']}"
    figures = (
        ("in batches", "throughput", lambda timing: f"{timing['texts_per_second']:,.0f} texts/s"),
        ("one at a time, p50", "p50", lambda timing: f"{timing['p50_ms']:.1f} ms"),
        ("one at a time, p99", "p99", lambda timing: f"{timing['p99_ms']:.1f} ms"),
    )
    for kind, key, figure in figures:
        others = {name: other for name, other in result["of"].items() if name != "bert-jax"}
        for name, other in others.items():
            yield Row(f"{what}, {kind}", figure(ours), f"{name} {figure(other)}", other[key])
        if not others:
            yield Row(f"{what}, {kind}", figure(ours))


def example_rows(title: str, result: dict) -> Iterator[Row]:
    best, means = result["best"], result["means"]
    for ours, others in result["against"].items():
        seeds, mean = len(result["runs"][ours]), means[ours]
        what = f"{title}, {ours.replace(' ', ' in ')}, {seeds} seeds"
        for name, other in others.items():
            error = other["standard_error"]
            within = "" if error is None else f" ± {error:.4f}"
            yield Row(
                f"{what}: time, including compilation",
                f"{mean['seconds']:.1f} s",
                f"{name} {means[name]['seconds']:.1f} s",
                other["speedup"],
            )
            yield Row(
                f"{what}: {best}",
                f"{mean[best]:.4f}",
                f"{name} {other['score']:.4f} (difference {other['difference']:+.4f}{within})",
            )
        if not others:
            yield Row(f"{what}: {best}", f"{mean[best]:.4f}")


def step_rows(title: str, result: dict) -> Iterator[Row]:
    step = result["step"]
    what = f"{title}, {step['size']}, {step['batch']} x {step['length']}, ours in {step['dtype']}"
    share = f", {result['share_of_matmul']:.0%} of the speed of a plain matrix product"
    for name, other in result.get("against", {}).items():
        yield Row(
            what,
            f"{other['ours_seconds']:.3f} s{share}",
            f"torch {name} {other['seconds']:.3f} s",
            other["speedup"],
        )
    if not result.get("against"):
        yield Row(what, f"{result['seconds']:.3f} s{share}")


def loss_rows(title: str, result: dict) -> Iterator[Row]:
    def figures(lines: list[dict]) -> str:
        return f"{lines[-1]['mlm_loss']:.3f}, {lines[-1]['mlm_accuracy']:.3f}"

    ours, *others = result.items()
    yield Row(
        f"{title}, {ours[1][-1]['step']:,} steps: validation loss and accuracy of masked words",
        figures(ours[1]),
        "; ".join(f"{name}, same initial values and batches: {figures(lines)}" for name, lines in others),
    )


def stream_rows(title: str, result: dict) -> Iterator[Row]:
    for length, rate in zip(result["lengths"], next(iter(result["rows_per_second"].values())), strict=True):
        yield Row(f"{title}, rows of {length} tokens", f"{rate:,.0f} rows/s")


def corpus_rows(title: str, result: dict) -> Iterator[Row]:
    ours, bare = (result["of"][name]["million_tokens_per_second"] for name in ("prepare", "bare"))
    yield Row(title, f"{ours:.2f} M tokens/s", f"the bare tokenizer {bare:.2f}", result["ratio"])


def id_rows(title: str, result: dict) -> Iterator[Row]:
    what = f"{title}: {result['vocabularies']} vocabularies, {result['tokens']:,} tokens"
    yield Row(what, f"{result['differences']} differences", "transformers")


# Input files made from the data sets: name -> (the function that writes the file, the files that it reads).
INPUTS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "sst2.txt": (sources.sentences, ("glue-sst2/dev.tsv",)),
    "sts.txt": (sources.pairs_as_lines, ("stsbenchmark/sts-test.csv",)),
    "long.txt": (sources.passages, ("wikitext-2/test.txt",)),
    "mrpc-train.tsv": (sources.paraphrases, ("mrpc/msr_paraphrase_train.txt",)),
    "mrpc-test.tsv": (sources.paraphrases, ("mrpc/msr_paraphrase_test.txt",)),
}

FEW_TEXTS = "--texts 8 --rounds 1 --seconds 0"
FEW_STEPS = "--size tiny --batch 2 --length 16 --steps 1 --seconds 0"
FEW_EXAMPLES = "--seeds 1 --seconds 0 --config.steps=2 --config.data.heldout="
EMBEDDERS = ("sentence-transformers", "onnxruntime")
FINE_TUNING = {  # title -> config, training file, validation file, settings, settings for --quick
    "fine-tune on SST-2": (
        "classify", "{data}/glue-sst2/train.tsv", "{data}/glue-sst2/dev.tsv",
        "--config.data.most=6400 --config.epochs=1 --config.optimizer.learning_rate=3e-5",
        "--config.data.most=64 --config.data.max_length=32",
    ),
    "fine-tune on MRPC": (
        "classify", "{inputs}/mrpc-train.tsv", "{inputs}/mrpc-test.tsv",
        "--config.epochs=2 --config.optimizer.learning_rate=5e-5 --config.data.columns.text=sentence1 "
        "--config.data.columns.pair=sentence2", "--config.data.most=64 --config.data.max_length=32",
    ),
    # --quick keeps all examples: with fewer, a tag might be in the validation set only, which is an error.
    "fine-tune on CoNLL-2003": (
        "tag", "{data}/conll2003/eng.train", "{data}/conll2003/eng.testa",
        "--config.data.most=6400 --config.epochs=1", "--config.data.max_length=64",
    ),
    "fine-tune on SQuAD": (
        "answer", "{data}/squad/dev-v1.1.json", "", "--config.data.most=3000 --config.epochs=1",
        "--config.data.max_length=192",
    ),
}  # fmt: skip


def fine_tunings() -> Iterator[Measurement]:
    for title, (config, train, heldout, settings, quick) in FINE_TUNING.items():
        files = f"--config.data.train={train}" + (f" --config.data.heldout={heldout}" if heldout else "")
        yield Measurement(
            title.rsplit(" ")[-1].lower(),
            title,
            f"finetune --config {config} --config.init={{model}} {files} {settings} --dtypes float32 bfloat16",
            example_rows,
            ("transformers", "transformers-autocast"),
            f"{FEW_EXAMPLES} {quick}",
        )


def embeddings() -> Iterator[Measurement]:
    for kind, title, file, texts in (
        ("short", "embed STS-B's sentences", "sts", 500),
        ("long", "embed passages", "long", 100),
    ):
        for dtype in ("float32", "bfloat16"):
            command = f"embed --model {{model}} --input {{inputs}}/{file}.txt --texts {texts} --dtype {dtype}"
            yield Measurement(f"embed-{kind}-{dtype}", title, command, text_rows, EMBEDDERS, FEW_TEXTS)


def classifications() -> Iterator[Measurement]:
    for dtype in ("float32", "bfloat16"):
        yield Measurement(
            f"predict-{dtype}",
            "classify SST-2's dev texts",
            f"predict --model {{classifier}} --input {{inputs}}/sst2.txt --dtype {dtype}",
            text_rows,
            ("transformers", "onnxruntime"),
            FEW_TEXTS,
        )


def steps() -> Iterator[Measurement]:
    for dtype in ("float32", "bfloat16"):
        command = f"train --size base --batch 8 --length 128 --dtype {dtype}"
        yield Measurement(f"step-{dtype}", "a pre-training step", command, step_rows, ("torch",), FEW_STEPS)


MEASUREMENTS = (
    *embeddings(),
    *classifications(),
    *steps(),
    *fine_tunings(),
    Measurement(
        "pretrain",
        "pre-train mini without dropout, 16 rows of 128",
        "pretrain --config pretrain:mini,laptop --workdir {output}/pretrain "
        "--config.data.corpora={corpus} --config.data.batch_size=16 --config.data.lengths=128 --config.data.rate=0.15 "
        "--config.data.examples=next_sentence --config.steps=3000 "
        "--config.model.dropout=0 --config.model.attention_dropout=0 --config.embeddings=random "
        "--config.log.max_eval_batches=80",
        loss_rows,
        ("transformers",),
        "--workdir {output}/pretrain-quick --config.steps=2 --config.log.max_eval_batches=1",
    ),
    Measurement(
        "input", "corpus to batches with pairs and masks", "input --corpus {corpus}", stream_rows,
        quick="--batch 8 --lengths 64 --seconds 0.1",
    ),
    Measurement(
        "prepare", "text to corpus",
        "prepare --input {data}/wikitext-2/train.txt --tokenizer {model} --megabytes 10", corpus_rows,
        quick="--rounds 1 --seconds 0 --megabytes 5",
    ),
    Measurement(
        "tokenizers", "ids and offsets compared with transformers",
        "tokenizers --vocab {model} {data}/vocab/*vocab* {data}/vocab/albert*.model {data}/vocab/sentencepiece*.model "
        "--text {data}/xquad/*", id_rows, needs=("transformers",),
        quick="--vocab {model} --text {data}/xquad/xquad.en.json",
    ),
)  # fmt: skip
