"""The flags of the verbs that also work on a cluster."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.command.flags import Flag, engine_of, flag, given_flags, positive_integer, whole_number_type
from bert_jax.core.bucket import is_bucket
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_line

if TYPE_CHECKING:
    from bert_jax.cluster.worker import ClusterOptions, ModelShards

MAX_WORKERS = 1 << 16
FLAGS = ("workers", "accelerator", "format", "shard_rows", "dry_run", "remove_missing")  # which need --ray
FILE_ENDINGS = (".csv", ".jsonl", ".npy", ".npz", ".parquet", ".tsv", ".txt")

RAY = (
    flag(
        "--ray", nargs="?", const="local", metavar="ADDRESS",
        help="work on a Ray cluster: at HOST:PORT, or auto on one of its machines (default: this machine alone); the "
        "same command resumes",
    ),
    flag(
        "--workers", type=whole_number_type(1, MAX_WORKERS), metavar="N",
        help="workers of the cluster (default: one for each core, or each accelerator)",
    ),
    flag("--dry-run", action="store_true", help="with --ray: say what there is to do, and how long it would take"),
)  # fmt: skip


def shard_flags(*formats: str) -> tuple[Flag, ...]:
    """Return the flags of a verb that writes a file for each shard of its input, in one of the formats."""
    return (
        *RAY,
        flag("--accelerator", choices=("gpu", "tpu"), help="with --ray: an accelerator for each worker"),
        flag(
            "--shard-rows", type=positive_integer, metavar="N",
            help="with --ray: cut files into shards of N rows (default: a single file into 65,536, others not)",
        ),
        flag(
            "--remove-missing", action="store_true",
            help="with --ray: remove outputs whose inputs are not there any more",
        ),
        flag("--format", choices=formats, help=f"with --ray: format of the shards (default {formats[0]})"),
    )  # fmt: skip


def cluster_options(args: argparse.Namespace) -> "ClusterOptions | None":
    """Return the cluster to work on, or None: this process. Refuse flags of a cluster without --ray."""
    if args.ray is None:
        if given := given_flags(args, FLAGS):
            raise BertJaxError(f"{given[0]} is for a cluster; add --ray, or leave {given[0]} out")
        return None
    from bert_jax.cluster.connection import check_address, require_ray
    from bert_jax.cluster.worker import ClusterOptions

    check_address(args.ray)
    require_ray()
    return ClusterOptions(args.ray, args.workers, getattr(args, "accelerator", None))


def output_folder(args: argparse.Namespace) -> str:
    """Return the folder of --output; refuse the name of a file."""
    if args.output is None:
        raise BertJaxError("--ray writes a file for each shard; give a folder for them, --output FOLDER")
    if Path(args.output).suffix.lower() in FILE_ENDINGS:
        raise BertJaxError(
            f"with --ray, --output {args.output} is a folder; name one, and the format with --format"
        )
    return args.output.rstrip("/") if is_bucket(args.output) else str(Path(args.output).absolute())


def write_on_cluster(
    args: argparse.Namespace, cluster: "ClusterOptions", shards_class: "type[ModelShards]", **settings
) -> None:
    """Do what a verb does with each shard of --input, or say how long that would take; `settings` are those of
    `shards_class` alone."""
    from bert_jax.cluster.run_shards import check_output, estimate_input, run_shards

    output = output_folder(args)
    check_output(output, args.input, args.model, args.shard_rows)
    work = shards_class.from_model(
        args.model, args.format, output, engine=engine_of(args), shard_rows=args.shard_rows, **settings
    )
    if args.dry_run:
        print_line(estimate_input(cluster, work, args.input))
    else:
        print_line(run_shards(cluster, work, args.input, args.remove_missing))
