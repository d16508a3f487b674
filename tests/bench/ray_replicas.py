"""An embedder behind Ray Serve, which batches by itself: what a server with several workers is compared with.

Run it by a Python that has bert_jax and ray[serve].
"""

import argparse
import os
import time

import numpy as np
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bert_jax.inference.load import load
from bert_jax.inference.text_vectors import EmbeddingPipeline


@serve.deployment(num_replicas=2, max_ongoing_requests=256, ray_actor_options={"num_cpus": 1})
class Replica:
    def __init__(self, model: str, engine: str, dtype: str):
        rank = serve.get_replica_context().rank.rank
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
        self.embed = EmbeddingPipeline(load(model, engine=engine, dtype=dtype))
        self.embed.model.warm_up([8, 16, 24, 32, 48, 64], texts=64)

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.005)
    async def embed_together(self, requests: list[list[str]]) -> list[np.ndarray]:
        vectors = self.embed([text for texts in requests for text in texts])
        return np.split(vectors, np.cumsum([len(texts) for texts in requests])[:-1])

    async def __call__(self, request: Request) -> Response:
        if request.url.path == "/health":
            return Response()
        texts = (await request.json())["input"]
        vectors = await self.embed_together([texts] if isinstance(texts, str) else texts)
        return JSONResponse({"data": [{"index": n, "embedding": v.tolist()} for n, v in enumerate(vectors)]})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    for name in ("--engine", "--dtype"):
        parser.add_argument(name)
    parser.add_argument("--port", type=int)
    args = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": args.port})
    serve.run(Replica.bind(args.model, args.engine, args.dtype))
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
