"""The verb `embed`."""

from bert_jax.command.cluster_flags import cluster_options, shard_flags, write_on_cluster
from bert_jax.command.flags import ENGINE, LONG, engine_of, flag, positive_integer, verb


@verb(
    "compute a vector for each text",
    "bert-jax embed --model DIR --input lines.txt --output vectors.npy",
    flag("--model", required=True, metavar="DIR", help="model directory: an embedder, or any encoder"),
    flag(
        "--input", default="-", metavar="FILE",
        help="file with one text per line, or a table: .csv .tsv .jsonl .json .parquet (default -, standard input); "
        "with --ray also a folder, a glob or a bucket (gs://, s3://)",
    ),
    flag(
        "--text", default="", metavar="COLUMN",
        help="column of texts of a table, or of JSON objects on standard input (default: by its usual names)",
    ),
    flag(
        "--output", metavar="PATH",
        help="a file NAME.npy, or a directory of .npy files, in which the same command resumes (default: JSON arrays "
        "on standard output); with --ray a folder, in a bucket or not",
    ),
    flag("--prompt", metavar="NAME", help="name of the model's prompt to put before each text"),
    flag("--dimensions", type=positive_integer, metavar="N", help="keep the first N dimensions of each vector"),
    flag(
        "--quantize", choices=("int8", "binary"),
        help="store each dimension as a byte, or its sign as a bit",
    ),
    LONG,
    *ENGINE,
    *shard_flags("npy", "parquet"),
)  # fmt: skip
def embed(args):
    from bert_jax.inference.engine import open_directory
    from bert_jax.search.embed_file import write_vectors

    settings = {"prompt": args.prompt, "dimensions": args.dimensions, "long_texts": args.long_texts}
    if cluster := cluster_options(args):
        from bert_jax.cluster.embed_shards import EmbedShards

        own = {"pipeline": settings, "column": args.text, "quantize": args.quantize}
        write_on_cluster(args, cluster, EmbedShards, **own)
        return
    write_vectors(
        open_directory(args.model, **engine_of(args)),
        settings,
        args.input,
        args.text,
        args.output,
        args.quantize,
    )
