"""The verb `embed`."""

from bert_jax.command.cluster_flags import cluster_options, shard_flags, write_on_cluster
from bert_jax.command.flags import ENGINE, LONG, engine_of, flag, given_flags, positive_integer, verb
from bert_jax.core.errors import BertJaxError


@verb(
    "compute a vector for each text",
    "bert-jax embed --model DIR --input lines.txt --output vectors.npy",
    flag("--model", required=True, metavar="DIR", help="model directory: an embedder, dense or sparse, or any encoder"),
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
        help="a file NAME.npy, or a directory of .npy files, in which the same command resumes; for sparse vectors a "
        "file NAME.npz (default: JSON on standard output); with --ray a folder, in a bucket or not",
    ),
    flag("--prompt", metavar="NAME", help="name of the model's prompt to put before each text"),
    flag("--dimensions", type=positive_integer, metavar="N", help="keep the first N dimensions of each vector"),
    flag(
        "--quantize", choices=("int8", "binary"),
        help="store each dimension as a byte, or its sign as a bit",
    ),
    flag(
        "--max-active-dims", type=positive_integer, metavar="N", help="keep the N largest weights of a sparse vector"
    ),
    LONG,
    *ENGINE,
    *shard_flags("npy", "parquet"),
)  # fmt: skip
def embed(args):
    from bert_jax.inference.engine import open_directory

    cluster, directory = cluster_options(args), open_directory(args.model, **engine_of(args))
    if directory.layout.sparse:
        embed_sparse(args, cluster, directory)
        return
    if given := given_flags(args, ("max_active_dims",)):
        raise BertJaxError(
            f"{given[0]} is for sparse vectors; leave it out, because {args.model} gives dense ones"
        )
    settings = {"prompt": args.prompt, "dimensions": args.dimensions, "long_texts": args.long_texts}
    if cluster:
        from bert_jax.cluster.embed_shards import EmbedShards

        own = {"pipeline": settings, "column": args.text, "quantize": args.quantize}
        write_on_cluster(args, cluster, EmbedShards, **own)
        return
    from bert_jax.search.embed_file import write_vectors

    write_vectors(directory, settings, args.input, args.text, args.output, args.quantize)


def embed_sparse(args, cluster, directory) -> None:
    if given := given_flags(args, ("dimensions", "quantize")):
        raise BertJaxError(
            f"{given[0]} is for dense vectors; leave it out, because {args.model} gives sparse ones"
        )
    settings = {"prompt": args.prompt, "max_active_dims": args.max_active_dims, "long_texts": args.long_texts}
    if cluster:
        from bert_jax.cluster.embed_sparse_shards import EmbedSparseShards

        if args.format == "npy":
            raise BertJaxError("sparse vectors are written as Parquet; leave --format out")
        write_on_cluster(args, cluster, EmbedSparseShards, pipeline=settings, column=args.text)
        return
    from bert_jax.search.sparse_file import write_sparse_vectors

    write_sparse_vectors(directory, settings, args.input, args.text, args.output)
