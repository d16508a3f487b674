"""The verb `export`."""

from pathlib import Path

from bert_jax.command.flags import CALIBRATION_DATA, OUTPUT, flag, positive_integer, verb, whole_number_type
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import refuse_output


@verb(
    "write a checkpoint's model, an ONNX file or static embeddings",
    "bert-jax export DIR --format onnx --output model-onnx",
    flag("directory", help="directory of a run, of a model, or of an adapter, which is merged into its base model"),
    OUTPUT,
    flag("--adapter", metavar="DIR", help="adapter (LoRA, in PEFT's files) that is merged into the model"),
    flag(
        "--format", choices=("hf", "onnx", "static"), default="hf",
        help="hf: as transformers opens it, of a run the model of a checkpoint; onnx: without JAX, for ONNX Runtime, "
        "sentence-transformers, FastEmbed, TEI; static: a vector for each token, for model2vec and "
        "sentence-transformers (default hf)",
    ),
    flag(
        "--dimensions", type=positive_integer,
        help="numbers of a vector of --format static (default 256, or as many as the model has)",
    ),
    flag(
        "--quantize", choices=("auto", "avx512_vnni", "avx2"), metavar="FOR",
        help="write an int8 file, too: faster, less exact; avx512_vnni: for processors with VNNI, avx2: for others, "
        "auto: for this one",
    ),
    CALIBRATION_DATA,
    flag(
        "--data", metavar="FILE",
        help="labelled data, as `evaluate --data` reads it: measure what --quantize changes",
    ),
    flag("--step", type=whole_number_type(0), help="step of the checkpoint (default: the newest)"),
)  # fmt: skip
def export(args):
    from bert_jax.hub.model_directory import ModelDirectory
    from bert_jax.inference.load import load

    for source in filter(None, (args.directory, args.adapter)):
        refuse_output(args.output, source)
    is_run = (Path(args.directory) / "run.json").is_file() and not args.adapter
    if args.adapter and args.step is not None:
        raise BertJaxError(
            "--step chooses a checkpoint of a run, and --adapter is merged into a model; leave one out"
        )
    if args.adapter:
        args.directory = ModelDirectory.open(args.adapter, base=args.directory)
    if args.data and not args.quantize:
        raise BertJaxError(
            "--data measures what --quantize changes, and other files compute what the model does; leave --data out"
        )
    if args.calibration_data and not args.quantize:
        raise BertJaxError("--calibration-data is for an int8 file; add --quantize auto, or leave it out")
    if args.step is not None and args.format != "hf":
        raise BertJaxError(
            f"--step chooses a checkpoint of a run; export it first, then the model to --format {args.format}"
        )
    if args.dimensions and args.format != "static":
        raise BertJaxError("--dimensions is for static embeddings; add --format static")
    if args.format == "onnx":
        write_onnx(args)
        return
    if args.quantize:
        raise BertJaxError("--quantize writes an ONNX file; add --format onnx")
    if args.format == "static":
        from bert_jax.export.static_directory import export_static

        described = export_static(args.directory, args.output, args.dimensions)
        print(f"the static embeddings are in {args.output}: {described}")
        return
    if not is_run and args.step is None:
        load(args.directory).save(args.output)
        print(f"the model is in {args.output}")
        return
    step = export_checkpoint(args.directory, args.output, args.step)
    print(f"the model of step {step:,} is in {args.output}")


def write_onnx(args) -> None:
    from bert_jax.inference.onnx_session import require_packages

    require_packages("--format onnx", "onnx", "onnxruntime")
    from bert_jax.export.onnx_directory import export_onnx
    from bert_jax.predictions import calibration

    exact, *quantized = export_onnx(args.directory, args.output, args.quantize, args.calibration_data or "")
    print(
        f"{exact.path}: {', '.join(exact.outputs)}; the largest difference from {args.directory} is "
        f"{exact.difference.largest:.1e}"
    )
    for file in quantized:
        print(f"{file.path}: int8; it changes the outputs by {file.difference.share:.1%} of their size")
        if (exact.path.parents[1] / calibration.FILE).exists():
            print(
                f"{calibration.FILE} is that of float32; probabilities of the int8 file are not calibrated again"
            )
    if args.data:
        print(compare_int8(args.directory, args.output, args.data))


def compare_int8(source: str, exported: str, data: str) -> str:
    """Describe the main score of a model and of its int8 file on labelled data."""
    from bert_jax.inference.engine import open_directory
    from bert_jax.metrics.intervals import difference_intervals
    from bert_jax.report.model_evaluation import measure_scores

    metric, before = measure_scores(open_directory(source), data)
    _, after = measure_scores(open_directory(exported, "onnxruntime", "int8"), data)
    change = difference_intervals(before, after)[metric]
    return (
        f"{metric} on {data}: {before.scores[metric]:.4f}, int8 {after.scores[metric]:.4f} (95% interval of the change "
        f"{change.low:+.4f} to {change.high:+.4f})"
    )


def export_checkpoint(path: str, directory: str, step: int | None = None) -> int:
    """Write the models of a checkpoint, by default of the newest, and return its step."""
    from bert_jax import tasks
    from bert_jax.hub import model_directory as hub
    from bert_jax.hub.adapter_targets import trained_modules
    from bert_jax.text.tokenizer_directory import open_tokenizer
    from bert_jax.training.adapters import merge_params
    from bert_jax.training.checkpoint import CheckpointFolder
    from bert_jax.training.task import save_models
    from bert_jax.training.warm_start import read_model_params
    from bert_jax.training.workdir import Workdir, read_adapter_config

    workdir = Workdir(path)
    settings = workdir.read_run()["config"]
    if settings.get("method") == "contrastive":
        raise BertJaxError(
            f"{path} fits its head after the last step (method=contrastive), so its checkpoints have none; the model "
            f"of the finished run is {workdir.model}"
        )
    task = tasks.reopen_task(settings["task"], workdir.layouts())
    checkpoints = CheckpointFolder(workdir.checkpoints)
    if step is None:
        steps = checkpoints.steps()
        if not steps:
            raise BertJaxError(f"{path} has no checkpoint yet; continue the run until it writes one")
        step = steps[-1]
    checkpoints.require_step(step)
    params, adapter = checkpoints.read_params(step), read_adapter_config(settings)
    if adapter.rank:
        if hub.model_fingerprint(settings["init"]) != settings.get("init_fingerprint"):
            raise BertJaxError(f"{settings['init']} has changed since the run {path} began; put it back")
        base = read_model_params(hub.ModelDirectory.open(settings["init"]), task.layout)
        frozen = {name: part for name, part in base.items() if name not in trained_modules(base)}
        params = merge_params(task, adapter, params, frozen)
    with hub.atomic_model_directory(directory) as new:
        save_models(new, task, params, open_tokenizer(workdir.tokenizer))
    return step
