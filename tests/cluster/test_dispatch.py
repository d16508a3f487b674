"""How shards are given to workers: with calls that end at once or die, instead of a cluster."""

from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from bert_jax.cluster import dispatch, run_shards
from bert_jax.cluster.dispatch import MAX_DEATHS, Dispatcher
from bert_jax.cluster.worker import ShardRefusal, ShardResult, WorkerPlan
from bert_jax.core.errors import BertJaxError
from bert_jax.data.shards.shard import Shard

DONE = ShardResult(1, 0.1, ())
WORK = SimpleNamespace(required_path="model", unit="rows", counts_rows=True)
SHARDS = [Shard((f"{n}.txt",), str(n), size) for n, size in enumerate((5, 50, 20))]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(dispatch, "POLL_SECONDS", 0.0)


class Died(Exception):
    actor_init_failed = False

    def __init__(self, reason: str = "The actor died because its node has died. Node Id: 9"):
        super().__init__(reason)


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

    exceptions = SimpleNamespace(RayActorError=Died, OutOfMemoryError=MemoryError)

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

    def describe_lack(self, _) -> str:
        return "the cluster has nothing"

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
    dispatcher = Dispatcher(cluster, WORK, SHARDS, "predict")
    dispatcher.run(cluster)
    return dispatcher


def test_the_largest_shards_are_done_first():
    cluster = Cluster(lambda shard: ShardResult(shard.size, 0.1, ()))
    dispatcher = run(cluster)
    assert list(cluster.written) == ["1", "2", "0"] and dispatcher.failures == []
    assert sum(result.rows for result in dispatcher.results) == 75 and len(dispatcher.results) == 3


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
    assert failure.startswith("2.txt: ") and list(cluster.written).count("2") == MAX_DEATHS
    assert (
        capsys.readouterr().err
        == "2.txt: 3 workers died while they had it, the last because its node has died; if "
        "memory is short, take fewer --workers\n"
    )


def test_a_bad_shard_fails_and_the_others_go_on(capsys):
    cluster = Cluster(
        lambda shard: ShardRefusal("1.txt row 3 is empty") if shard.name == "1" else ShardResult(1, 0.1, ())
    )
    dispatcher = run(cluster)
    assert dispatcher.failures == ["1.txt row 3 is empty"] and len(dispatcher.results) == 2
    assert capsys.readouterr().err == "1.txt row 3 is empty\n"


def test_a_worker_with_a_full_disk_gets_no_other_shard(capsys):
    """Otherwise it would fail one shard after another, faster than the others do them."""
    cluster = Cluster(
        lambda shard: ShardRefusal(f"{shard.name} (on a)", shard.name == "1") if shard.size > 5 else DONE
    )
    cluster.workers = 1
    dispatcher = run(cluster)
    assert list(cluster.written) == ["1"] and [shard.name for shard in dispatcher.queue] == ["2", "0"]
    assert capsys.readouterr().err == "1 (on a)\n"
    assert not dispatcher.idle
    cluster.workers = 2
    assert run(cluster).failures == ["1 (on a)", "2 (on a)"]
    assert list(cluster.written) == ["1", "1", "2", "0"]


def test_a_machine_that_cannot_open_the_work_ends_the_command():
    cluster = Cluster(
        lambda shard: ShardResult(1, 0.1, ()), lambda *_: ShardRefusal("host-2 does not see /models")
    )
    with pytest.raises(BertJaxError, match="host-2 does not see /models"):
        run(cluster)
    assert not cluster.written


def test_a_worker_that_cannot_start_ends_the_command():
    unborn = type("Unborn", (Died,), {"actor_init_failed": True})("a\nNo module named 'bert_jax'")
    message = r"a worker cannot start \(No module named 'bert_jax'\); install bert-jax on every machine"
    with pytest.raises(BertJaxError, match=message):
        run(Cluster(lambda shard: DONE, lambda *_: unborn))


@pytest.mark.parametrize(("opened", "died"), [
    (None, ""), (Died(), "; one died while it opened model, because its node has died"),
])  # fmt: skip
def test_without_a_worker_that_is_ready_the_command_says_so_and_ends(opened, died, capsys, monkeypatch):
    """The machines are gone, or have no room; or workers die when they open the model."""
    times = iter(range(0, 100_000, 10))
    monkeypatch.setattr(
        dispatch, "time", SimpleNamespace(monotonic=lambda: next(times), sleep=lambda _: None)
    )
    cluster, polls = Cluster(lambda shard: DONE, lambda *_: opened), iter(range(500))

    def wait(calls, timeout):
        assert next(polls, None) is not None, "it waits for ever"
        return (calls[:1], calls[1:]) if opened else ([], calls)

    monkeypatch.setattr(cluster, "wait", wait)
    with pytest.raises(
        BertJaxError, match=f"^no worker was ready within 15 min: the cluster has nothing{died}; start"
    ):
        run(cluster)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("no worker is ready")]
    assert len(lines) == 1 and lines[0].endswith("; the command ends if none is within 15 min")


def test_what_a_cluster_lacks():
    nodes = [{"Alive": True, "Resources": {}}, {"Alive": False}]
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 3.0}, nodes=lambda: nodes)
    assert WorkerPlan(2, 4, None).describe_lack(ray) == (
        "each needs 4 CPU, and the cluster has 3 on 1 machine, and 1 more dead"
    )
    assert WorkerPlan(2, 1, "gpu").describe_lack(ray).startswith("each needs 1 GPU, and the cluster has 0")


def test_the_time_left_is_not_that_of_a_row_among_a_million():
    """A shard with one long row, which has nearly all bytes, is not done yet."""
    dispatcher = Dispatcher(
        None, WORK, [Shard(("a",), "a", 10), Shard(("b",), "b", 10_000_000)], "predict", 3
    )
    assert dispatcher.describe_progress(0.5) == "predict: 3 of 5 shards, no worker is ready"
    dispatcher.begun, dispatcher.queue = 0.5, deque(list(dispatcher.queue)[:1])
    dispatcher.results, dispatcher.idle, dispatcher.bytes_done = [DONE], ["worker"], 10
    assert dispatcher.describe_progress(40.5) == "predict: 4 of 5 shards, 0 rows/s, 1 worker"
    dispatcher.bytes_done = dispatcher.bytes_left = 5_000_000
    assert dispatcher.describe_progress(40.5) == "predict: 4 of 5 shards, 0 rows/s, 40 s left, 1 worker"


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


@pytest.mark.parametrize(("measured", "rows"), [(3, "5 rows"), (2, "about 3 rows")])
def test_a_dry_run_tells_the_rows_that_it_can_count(measured, rows, tmp_path, monkeypatch):
    """Unless a shard that was done has other ones, as words that are columns of a line each."""
    shards = []
    for name, text in {"a": "w\nw\n", "b": "w\nw\nw\n"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
        shards.append(Shard((str(tmp_path / f"{name}.txt"),), name, len(text)))
    done = SimpleNamespace(run=lambda plan: None, failures=[], results=[ShardResult(measured, 1.0, ())])
    monkeypatch.setattr(run_shards, "connect", lambda _: nullcontext())
    monkeypatch.setattr(run_shards, "plan_workers", lambda *_: WorkerPlan(1, 1, None))
    monkeypatch.setattr(run_shards, "Dispatcher", lambda *_: done)
    assert run_shards.estimate(SimpleNamespace(address="local"), WORK, shards).startswith(
        f"2 shards, {rows}, "
    )
