"""How shards are given to workers: with calls that end at once or die, instead of a cluster."""

from collections import deque
from types import SimpleNamespace

import pytest

from bert_jax.cluster import dispatch
from bert_jax.cluster.cluster_progress import ClusterProgress
from bert_jax.cluster.dispatch import MAX_DEATHS, Dispatcher
from bert_jax.cluster.worker import Refusal, ShardResult
from bert_jax.cluster.workers import WorkerPlan
from bert_jax.core.errors import BertJaxError
from bert_jax.data.shards.shard import Shard

DONE = ShardResult(1, 0.1, ())
SHARDS = [Shard((f"{n}.txt",), str(n), size) for n, size in enumerate((5, 50, 20))]


class Died(Exception):
    actor_init_failed = False


class Method:
    def __init__(self, answers):
        self.answers = answers

    def options(self, **_):
        return self

    def remote(self, *arguments):
        return Call(self.answers(*arguments))


class Call:
    """A call of a worker, with its answer, or the error that it ends with."""

    def __init__(self, answer):
        self.answer = answer


class Cluster:
    """Stands in for Ray, and for the plan of its workers. `write` answers for a shard, `open` for a new worker."""

    exceptions = SimpleNamespace(RayActorError=Died)

    def __init__(self, write, open=lambda *_: None, workers: int = 2):
        self.written = deque()
        self.workers = workers
        self.answers = write
        self.actor = SimpleNamespace(open=Method(open), write=Method(self.write))

    def write(self, shard):
        self.written.append(shard.name)
        return self.answers(shard)

    def start(self, _):
        return [self.actor] * self.workers

    @staticmethod
    def wait(calls, timeout):
        assert calls, "Ray refuses to wait for nothing"
        return calls[:1], calls[1:]

    @staticmethod
    def get(call):
        if isinstance(call.answer, Exception):
            raise call.answer
        return call.answer


def run(cluster: Cluster) -> Dispatcher:
    progress = ClusterProgress("predict", "rows", SHARDS, 0)
    dispatcher = Dispatcher(cluster, SimpleNamespace(required_path="model"), SHARDS, progress)
    dispatcher.run(cluster)
    return dispatcher


def test_the_largest_shards_are_done_first():
    cluster = Cluster(lambda shard: ShardResult(shard.size, 0.1, ()))
    dispatcher = run(cluster)
    assert list(cluster.written) == ["1", "2", "0"] and dispatcher.failures == []
    assert dispatcher.progress.rows == 75 and dispatcher.progress.done == 3


def test_the_shard_of_a_worker_that_dies_is_done_again():
    deaths = {"2": [Died(), Died()]}

    def write(shard):
        return deaths[shard.name].pop() if deaths.get(shard.name) else ShardResult(1, 0.1, ())

    cluster = Cluster(write)
    assert run(cluster).failures == []
    assert sorted(cluster.written) == ["0", "1", "2", "2", "2"]


def test_a_worker_that_is_slow_to_start_again_is_waited_for():
    """Ray fails what is asked of a worker that it restarts."""
    answers = [None, *[Died()] * 9]
    cluster = Cluster(lambda shard: DONE, lambda *_: answers.pop(), workers=1)
    assert run(cluster).failures == [] and len(cluster.written) == 3 and not answers


def test_a_shard_that_kills_every_worker_fails_alone(capsys):
    cluster = Cluster(lambda shard: Died() if shard.name == "2" else ShardResult(1, 0.1, ()))
    (failure,) = run(cluster).failures
    assert (failure.shard.name, list(cluster.written).count("2")) == ("2", MAX_DEATHS)
    assert (
        capsys.readouterr().err == "2.txt: 3 workers died of it, likely out of memory; take fewer --workers\n"
    )


def test_a_bad_shard_fails_and_the_others_go_on(capsys):
    cluster = Cluster(
        lambda shard: Refusal("1.txt row 3 is empty") if shard.name == "1" else ShardResult(1, 0.1, ())
    )
    dispatcher = run(cluster)
    assert [failure.shard.name for failure in dispatcher.failures] == ["1"] and dispatcher.progress.done == 2
    assert capsys.readouterr().err == "1.txt row 3 is empty\n"


def test_a_worker_with_a_full_disk_gets_no_other_shard(capsys):
    """Otherwise it would fail one shard after another, faster than the others do them."""
    cluster = Cluster(
        lambda shard: Refusal(f"{shard.name} (on a)", shard.name == "1") if shard.size > 5 else DONE
    )
    cluster.workers = 1
    dispatcher = run(cluster)
    assert list(cluster.written) == ["1"] and [shard.name for shard in dispatcher.queue] == ["2", "0"]
    assert capsys.readouterr().err == "1 (on a)\n" and dispatcher.progress.workers == 0
    cluster.workers = 2
    assert [failure.shard.name for failure in run(cluster).failures] == ["1", "2"]
    assert list(cluster.written) == ["1", "1", "2", "0"]


def test_a_machine_that_cannot_open_the_work_ends_the_command():
    cluster = Cluster(
        lambda shard: ShardResult(1, 0.1, ()), lambda *_: Refusal("host-2 does not see /models")
    )
    with pytest.raises(BertJaxError, match="host-2 does not see /models"):
        run(cluster)
    assert not cluster.written


@pytest.mark.parametrize(("error", "message"), [
    (Died(), "workers died while they opened model, likely out of memory"),
    (type("Unborn", (Died,), {"actor_init_failed": True})("a\nNo module named 'bert_jax'"),
     r"a worker cannot start \(No module named 'bert_jax'\); install bert-jax on every machine"),
])  # fmt: skip
def test_workers_that_do_not_start_end_the_command(error, message, monkeypatch):
    monkeypatch.setattr(dispatch, "OPEN_SECONDS", 0.05)
    with pytest.raises(BertJaxError, match=message):
        run(Cluster(lambda shard: ShardResult(1, 0.1, ()), lambda *_: error))


def test_a_warning_of_every_shard_is_printed_once(capsys):
    run(Cluster(lambda shard: ShardResult(1, 0.1, (f"{shard.size} of 9 texts are long", "odd"))))
    assert capsys.readouterr().err == "1.txt: 50 of 9 texts are long\n1.txt: odd\n"


def test_the_memory_of_a_worker_is_bounded_by_its_cores():
    """Otherwise each shard leaves an arena of glibc behind."""
    started = []
    actor = SimpleNamespace(remote=lambda *arguments: arguments)
    options = SimpleNamespace(options=lambda **given: started.append(given) or actor)
    workers = WorkerPlan(2, 3, None).start(SimpleNamespace(remote=lambda _: options))
    assert workers == [(3, False)] * 2
    assert started[0]["runtime_env"] == {"env_vars": {"MALLOC_ARENA_MAX": "3"}}
