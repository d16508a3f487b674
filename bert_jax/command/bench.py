"""The flags of what `bert-jax bench` measures; each function adds its own and returns what to run."""

import argparse

from bert_jax.command.flags import Run, config_flags, input_flags


def embed(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument("--model", required=True, metavar="DIR", help="a sentence-transformers directory")
    parser.add_argument(
        "--against",
        nargs="+",
        default=[],
        choices=("sentence-transformers", "onnxruntime"),
        help="who takes turns",
    )
    parser.add_argument("--input", metavar="FILE", help="a text a line (default: random words)")
    parser.add_argument("--texts", type=int, default=500, help="drawn from them (default 500)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")

    def run(args):
        from bert_jax.bench.embed import report

        print(report(args.model, args.against, args.input, args.rounds, args.texts))

    return run


def predict(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument("--model", required=True, metavar="DIR", help="a classifier's directory")
    parser.add_argument(
        "--against", nargs="+", default=[], choices=("transformers", "onnxruntime"), help="who takes turns"
    )
    parser.add_argument("--input", metavar="FILE", help="a text a line (default: random words)")
    parser.add_argument("--texts", type=int, default=500, help="drawn from them (default 500)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")

    def run(args):
        from bert_jax.bench.predict import report

        print(report(args.model, args.against, args.input, args.rounds, args.texts, args.json))

    return run


def tokenizers(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument(
        "--vocab", nargs="+", required=True, help="directories, vocab.txt, vocab.json, .model files"
    )
    parser.add_argument("--text", nargs="*", default=[], help="JSON or UTF-8 text files")

    def run(args):
        from bert_jax.bench.tokenizers import report

        print(report(args.vocab, args.text))

    return run


def train(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument(
        "--size", default="base", help="tiny, mini, small, medium, base or large (default base)"
    )
    parser.add_argument("--batch", type=int, default=8, help="rows of a step (default 8)")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row (default 128)")
    parser.add_argument("--packs", type=int, default=1, help="sequences in a row (default 1)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="default float32")
    parser.add_argument("--attention", default="auto", help="auto, xla, cudnn or splash (default auto)")
    parser.add_argument("--dropout", type=float, default=0.1, help="of hidden states (default 0.1)")
    parser.add_argument("--attention-dropout", type=float, default=0.1, help="default 0.1")
    parser.add_argument("--accumulate", type=int, default=1, help="microbatches a step (default 1)")
    parser.add_argument("--remat", choices=("none", "dots", "full"), default="none", help="default none")
    parser.add_argument("--steps", type=int, default=5, help="steps timed (default 5)")
    parser.add_argument("--against", choices=("torch",), help="the same step of transformers, in turn")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")

    def run(args):
        from bert_jax.bench.train import Shape, report

        fields = {field: getattr(args, field) for field in Shape.__dataclass_fields__}
        print(report(Shape(**fields), args.steps, args.against, args.json))

    return run


def pretrain(parser: argparse.ArgumentParser) -> Run:
    config_flags(parser)
    parser.add_argument("--workdir", required=True, metavar="DIR", help="of the run; begun or gone on with")
    parser.add_argument("--against", choices=("transformers",), help="who does the same")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")

    def run(args):
        from bert_jax.bench.pretrain import report

        print(report(args.config, args.overrides, args.workdir, args.against, args.json))

    return run


def finetune(parser: argparse.ArgumentParser) -> Run:
    config_flags(parser)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument("--against", choices=("transformers",), help="who takes turns")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")

    def run(args):
        from bert_jax.bench.finetune import report

        print(report(args.config, args.overrides, args.seeds, args.against, args.json))

    return run


def prepare(parser: argparse.ArgumentParser) -> Run:
    input_flags(parser)
    parser.add_argument("--tokenizer", required=True, metavar="DIR", help="a vocabulary or model directory")
    parser.add_argument("--megabytes", type=float, default=32, help="of text to measure on (default 32)")

    def run(args):
        from bert_jax.bench.prepare import report

        print(report(args.input, args.tokenizer, args.megabytes, args.layout, args.column))

    return run


def inputs(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument("--corpus", required=True, metavar="DIR", help="what `bert-jax prepare` wrote")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512], help="of rows (128 512)")
    parser.add_argument("--batch", type=int, default=256, help="rows of a batch (default 256)")
    parser.add_argument("--seconds", type=float, default=10, help="measured for each figure (default 10)")

    def run(args):
        from bert_jax.bench.input import report

        print(report(args.corpus, args.lengths, args.batch, args.seconds))

    return run


# Name -> (its flags, what is measured, an example), in the order of the journey.
SUBJECTS = {
    "tokenizers": (
        tokenizers,
        "ids and offsets against transformers'",
        "bert-jax bench tokenizers --vocab DIR --text book.txt",
    ),
    "embed": (
        embed,
        "texts a second, against sentence-transformers and ONNX Runtime",
        "bert-jax bench embed --model DIR --against sentence-transformers onnxruntime --input lines.txt",
    ),
    "predict": (
        predict,
        "a classifier's latency and throughput, against transformers and ONNX Runtime",
        "bert-jax bench predict --model DIR --against transformers onnxruntime --input lines.txt",
    ),
    "prepare": (
        prepare,
        "text to corpus, against the bare tokenizer",
        "bert-jax bench prepare --input books/*.txt --tokenizer vocab --megabytes 12",
    ),
    "input": (
        inputs,
        "corpus to batches, and how many chips that would feed",
        "bert-jax bench input --corpus corpus --lengths 128 512",
    ),
    "pretrain": (
        pretrain,
        "what a pre-training reaches, against transformers'",
        "bert-jax bench pretrain --config configs/pretrain.py:mini,laptop --workdir runs/mini "
        "--config.data.corpora=corpus --against transformers",
    ),
    "finetune": (
        finetune,
        "a fine-tuning's scores and seconds, against transformers'",
        "bert-jax bench finetune --config configs/classify.py --config.init=DIR --config.data.train=train.csv "
        "--against transformers",
    ),
    "train": (
        train,
        "a pre-training step on synthetic batches, against torch's",
        "bert-jax bench train --size base --batch 8 --length 128 --against torch",
    ),
}
