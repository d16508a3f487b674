"""The verbs of `bert-jax bench`: speeds of a model, a step, an input stream and an index on this machine."""

import sys

from bert_jax.command.flags import (
    CALIBRATION_DATA,
    CONFIG,
    JSON,
    find_verbs,
    flag,
    picture_file,
    positive_integer,
    verb,
    verb_choice,
)

PROFILE = flag(
    "--profile", metavar="DIR",
    help="also write JAX's trace of a few calls to this directory: xprof and Perfetto show where the time goes",
)  # fmt: skip
TEXTS = (
    flag("--input", required=True, metavar="FILE", help="file with one text per line"),
    flag("--texts", type=positive_integer, default=500, help="number of texts to draw from it (default 500)"),
    flag(
        "--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32"], metavar="DTYPE",
        help="dtypes to compute in, one after the other: float32, bfloat16 (default float32)",
    ),
    PROFILE,
    JSON,
)  # fmt: skip


def bench_texts(args) -> None:
    from bert_jax.bench.text_speed import measure_texts

    texts = args.choice, args.model, args.input, args.texts
    print(measure_texts(*texts, args.dtype, args.profile, args.json))


@verb(
    "speed of an embedder: texts per second in batches, milliseconds for a single text",
    "bert-jax bench embed --model DIR --input lines.txt --dtype float32 bfloat16",
    flag("--model", required=True, metavar="DIR", help="model directory of an embedder or of any encoder"),
    *TEXTS,
)
def embed(args):
    bench_texts(args)


@verb(
    "speed of a classifier: texts per second in batches, milliseconds for a single text",
    "bert-jax bench predict --model DIR --input lines.txt",
    flag("--model", required=True, metavar="DIR", help="model directory of a classifier"),
    *TEXTS,
)
def predict(args):
    bench_texts(args)


@verb(
    "seconds of a training step of a config, on made-up rows",
    "bert-jax bench train --config configs/pretrain.py:base --config.data.batch_size=8",
    *CONFIG,
    PROFILE,
    JSON,
)
def train(args):
    from bert_jax.bench.step_speed import measure_steps

    print(measure_steps(args.config, args.overrides, args.profile, args.json))


@verb(
    "rows per second that this machine makes from a corpus",
    "bert-jax bench input --config configs/pretrain.py:base --config.data.corpora=corpus",
    *CONFIG,
    JSON,
)
def input_(args):
    from bert_jax.bench.input_speed import measure_input

    print(measure_input(args.config, args.overrides, args.json))


@verb(
    "speed of an index: milliseconds per query, queries per second",
    "bert-jax bench search INDEX --queries queries.txt",
    flag("index", metavar="INDEX", help="directory of an index"),
    flag(
        "--queries",
        metavar="FILE",
        help="file with one query per line (default: the first words of passages)",
    ),
    JSON,
)
def search(args):
    from bert_jax.bench.search_speed import measure_search

    print(measure_search(args.index, args.queries, args.json))


@verb(
    "quality and speed of models by every engine: JAX, ONNX Runtime, OpenVINO, int8",
    "bert-jax bench engines DIR --data dev.csv --picture engines.png",
    flag(
        "models",
        nargs="+",
        metavar="DIR",
        help="model directories, such as a model and its distilled students",
    ),
    flag("--data", required=True, metavar="FILE", help="labelled data, as `evaluate --data` reads it"),
    CALIBRATION_DATA,
    flag("--texts", type=positive_integer, default=200, help="number of its texts to time (default 200)"),
    flag(
        "--picture",
        type=picture_file,
        metavar="FILE.png",
        help="plot the scores over the speeds in this file",
    ),
    JSON,
)
def engines(args):
    from bert_jax.inference.onnx_session import require_packages

    require_packages("bench engines", "onnx", "onnxruntime")
    from bert_jax.bench.engines import measure_engines

    print(
        measure_engines(
            args.models, args.data, args.calibration_data or "", args.texts, args.picture, args.json
        )
    )


BENCHES = find_verbs(sys.modules[__name__])
bench = verb(
    "measure speeds on this machine, and where the time goes",
    "bert-jax bench embed --model DIR --input lines.txt",
    verb_choice(BENCHES),
)(lambda args: None)
