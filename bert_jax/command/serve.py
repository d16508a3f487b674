"""The verb `serve`."""

import os

from bert_jax.command.flags import (
    ENGINE,
    engine_of,
    flag,
    number_type,
    positive_integer,
    verb,
    whole_number_type,
)


@verb(
    "answer over HTTP, in the dialects of TEI, OpenAI, Cohere, Jina",
    "bert-jax serve minilm=DIR --port 3000",
    flag("models", nargs="+", metavar="DIR", help="directory of a model or an index, or NAME=DIR"),
    flag(
        "--adapter", action="append", default=[], metavar="DIR",
        help="directory of an adapter (LoRA) on the first model, or NAME=DIR; may be given several times",
    ),
    flag(
        "--adapter-folder", metavar="FOLDER", default="",
        help="folder whose folders are adapters on the first model; it is read again every two seconds",
    ),
    flag("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for all (default 127.0.0.1)"),
    flag("--port", type=whole_number_type(0, 65535), default=3000, help="port; 0 chooses a free one (default 3000)"),
    flag(
        "--api-key", metavar="KEY",
        help="refuse requests without the header Authorization: Bearer KEY (default: the variable API_KEY)",
    ),
    flag(
        "--max-batch-tokens", type=positive_integer, metavar="N",
        help="tokens taken for one call of a model (default 4,096 on a CPU, 65,536 on an accelerator)",
    ),
    flag(
        "--max-queued-tokens", type=positive_integer, metavar="N",
        help="tokens that may wait; more are refused with 429 (default 64 batches)",
    ),
    flag(
        "--max-body-bytes", type=positive_integer, default=2_000_000, metavar="N",
        help="size of a request's body; larger ones are refused with 413 (default 2,000,000)",
    ),
    flag(
        "--timeout", type=number_type(0, 3600, above=True), default=60.0, metavar="SECONDS",
        help="seconds for a body to arrive, and for an answer to be computed (default 60)",
    ),
    flag(
        "--workers", type=whole_number_type(1, 1024), default=1, metavar="N",
        help="processes that share the port and the cores, each with its models (default 1)",
    ),
    flag(
        "--no-warm-up", action="store_true",
        help="answer at once; each program is compiled at the first request that needs it",
    ),
    flag("--log-requests", action="store_true", help="write a line of JSON for each request to standard error"),
    *ENGINE,
)  # fmt: skip
def serve(args):
    from bert_jax.inference.onnx_session import require_packages

    require_packages("serve", "uvicorn", "uvloop", "httptools", "msgspec", "orjson")
    from bert_jax.serve.settings import ServeSettings
    from bert_jax.serve.workers import serve_by_workers, serve_in_process

    settings = ServeSettings(
        args.models,
        args.adapter,
        args.adapter_folder,
        args.host,
        args.port,
        warms_up=not args.no_warm_up,
        batch_tokens=args.max_batch_tokens or 0,
        queued_tokens=args.max_queued_tokens or 0,
        body_bytes=args.max_body_bytes,
        timeout=args.timeout,
        api_key=args.api_key or os.environ.get("API_KEY") or None,
        logs_requests=args.log_requests,
        **engine_of(args),
    )
    if args.workers == 1:
        serve_in_process(settings)
    else:
        serve_by_workers(settings, args.workers)
