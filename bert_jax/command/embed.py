"""The verb `embed`."""

from bert_jax.command.cluster_flags import cluster_options, shard_flags, write_on_cluster
from bert_jax.command.flags import ENGINE, LONG, engine_of, flag, given_flags, positive_integer, verb
from bert_jax.core.errors import BertJaxError


@verb(
    "compute a vector for each text, or for each token",
    "bert-jax embed --model DIR --input lines.txt --output vectors.npy",
    flag("--model", required=True, metavar="DIR", help="model directory: any embedder or encoder"),
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
        help="a file NAME.npy, or a directory of .npy files, in which the same command resumes; for sparse vectors and "
        "those of tokens a file NAME.npz (default: JSON on standard output); with --ray a folder, in a bucket or not",
    ),
    flag(
        "--prompt", metavar="NAME",
        help="name of the model's prompt to put before each text; a multi-vector embedder reads texts as documents, "
        "and with query as queries",
    ),
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
    from bert_jax.search.vector_forms import FORMS, vector_form_of

    cluster, directory = cluster_options(args), open_directory(args.model, **engine_of(args))
    form = vector_form_of(directory.layout)
    others = (name for other in FORMS for name in other.flags if name not in form.flags)
    if given := given_flags(args, others):
        raise BertJaxError(
            f"{given[0]} is not for {form.name} vectors, which {args.model} gives; leave it out"
        )
    settings = {"prompt": args.prompt, "long_texts": args.long_texts}
    settings |= {name: getattr(args, name) for name in form.flags if name != "quantize"}
    if cluster:
        from bert_jax.cluster.embed_shards import EmbedShards

        if form.columns and args.format == "npy":
            raise BertJaxError(f"{form.name} vectors are written as Parquet; leave --format out")
        args.format = args.format or ("parquet" if form.columns else None)
        write_on_cluster(
            args, cluster, EmbedShards, pipeline=settings, column=args.text, quantize=args.quantize
        )
        return
    from bert_jax.search.embed_file import write_vectors

    write_vectors(directory, settings, args.input, args.text, args.output, args.quantize)
