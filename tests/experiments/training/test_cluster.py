"""Runs on a Ray cluster: the same as in one process, bit for bit, whoever is killed or stopped meanwhile."""

import dataclasses
import importlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import DIGITS, assert_same_end

import subspaces as ss
from subspaces.experiments.training import Execution, Run, Stopped, TrainingError
from subspaces.experiments.training import cluster as cluster_of
from subspaces.experiments.training.cluster import check, resources, work

QUIET: dict[str, Any] = {"device": "cpu", "show": "quiet"}
LINE = dataclasses.replace(DIGITS, method="line")
OUTSIDE = Path(__file__).parents[2] / "outside"
SECONDS = 60.0


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, where it is installed, with a token and a folder of the tests' own.

    It reads once, when imported, whether to use a token. Sockets have short names, and pytest's folders long ones.
    """
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        if "ray" not in sys.modules:
            patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
            patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        try:
            yield pytest.importorskip("ray")
        finally:
            until(lambda: removed(folder))


@pytest.fixture(scope="module")
def address(ray: Any) -> Iterator[str]:
    """A cluster of two machines with a core each, which are processes here."""
    from ray.cluster_utils import Cluster as Machines

    options = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 * 2**20}
    machines = Machines(initialize_head=True, head_node_args=options)
    try:
        machines.add_node(**options)
        yield machines.address
    finally:
        ray.shutdown()
        machines.shutdown()


@pytest.fixture(scope="module")
def cluster(ray: Any, address: str) -> str:
    """The same, to which this process is connected, so that workers outlast a test."""
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    return "auto"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Let this process compute as each task does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def until(true: Callable[[], Any]) -> Any:
    """Wait until something is there, and return it."""
    end = time.monotonic() + SECONDS
    while not (found := true()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def removed(folder: Path) -> bool:
    """Remove a folder that processes which are about to end may still write to."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def same(runs: list[Run], tmp_path: Path, **settings: Any) -> None:
    """All runs are what one process makes of them, and nothing else lies beside them."""
    expected = ss.train([run.recipe for run in runs], out=tmp_path / "alone", **{**QUIET, **settings})
    for run, other in zip(runs, expected, strict=True):
        assert_same_end(run, other)
    assert {path.name for path in runs[0].folder.parent.iterdir()} == {run.folder.name for run in runs}


def rows(run: Run) -> int:
    path = run.folder / "log.jsonl"
    return len(path.read_text().splitlines()) if path.is_file() else 0


def test_runs_are_those_of_one_process_and_are_shown_in_one_place(cluster, tmp_path, capsys):
    """Two as one program, one alone, and one that is finished already."""
    seeds = [dataclasses.replace(LINE, seed=seed) for seed in (0, 1)]
    alone = dataclasses.replace(DIGITS, method="ema", epochs=4)
    done = dataclasses.replace(DIGITS, seed=7)
    out = tmp_path / "runs"
    ss.train(done, out=out, **QUIET)
    runs = ss.train([*seeds, alone, done], out=out, ray=cluster, **{**QUIET, "show": "json"})
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for run in runs[:3]:
        assert [row for row in told if row["run"] == run.folder.name] == [
            {"run": run.folder.name, **row} for row in run.log()
        ]
    assert len(runs[0].starts()) == len(runs[3].starts()) == 1
    assert runs[0].starts()[0]["threads"] == 1
    same(runs, tmp_path)


def test_a_run_whose_worker_is_killed_continues_to_the_same_end(cluster, tmp_path):
    several = [dataclasses.replace(LINE, seed=seed, epochs=40) for seed in (0, 1)]
    out, killed = tmp_path / "runs", []
    first = Run.under(out, several[0])

    def kill() -> None:
        until(lambda: (first.folder / "state.safetensors").is_file() and rows(first) > 5)
        killed.append(int((first.folder / ".lock").read_text().split()[0]))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    runs = ss.train(several, out=out, ray=cluster, stack=1, checkpoint_seconds=0.1, **QUIET)
    thread.join()
    assert killed[0] != os.getpid()
    assert [len(run.starts()) for run in runs] == [2, 1]
    same(runs, tmp_path, stack=1)


def test_an_interrupt_leaves_checkpoints_and_the_same_call_continues(cluster, tmp_path):
    """Two runs are being trained, and the third has not begun."""
    out = tmp_path / "runs"
    several = [dataclasses.replace(LINE, seed=seed, epochs=60) for seed in (0, 1, 2)]
    first, second, third = (Run.under(out, one) for one in several)

    def interrupt() -> None:
        until(lambda: rows(first) and rows(second))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Stopped, match="SIGINT"):
        ss.train(several, out=out, ray=cluster, stack=1, **QUIET)
    thread.join()
    finished = [run.finished for run in (first, second)]  # on a slow machine one may be before the other begins
    assert [(run.folder / "state.safetensors").is_file() for run in (first, second)] == [not done for done in finished]
    assert not all(finished)
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []
    assert any(finished) or not third.folder.exists()
    runs = ss.train(several[: 2 + third.folder.exists()], out=out, ray=cluster, stack=1, **QUIET)
    assert [len(run.starts()) for run in runs[:2]] == [1 if done else 2 for done in finished]
    same(runs, tmp_path, stack=1)


def test_one_that_diverges_is_an_error_of_a_line_and_the_others_are_trained(cluster, tmp_path):
    wild = dataclasses.replace(DIGITS, name="wild", learning_rate=1e30)
    with pytest.raises(TrainingError, match=r"the loss of wild-seed0-\w+ is nan in epoch 1: lower --learning-rate"):
        ss.train([wild, LINE], out=tmp_path, ray=cluster, **QUIET)
    assert Run.under(tmp_path, LINE).finished


def test_the_code_of_the_page_runs(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # folders are relative to this process
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "ray.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"ss": ss}
    exec(code, names)
    assert [run.finished for run in names["runs"]] == [True] * 4


def work_elsewhere(recipes: Any, site: Any) -> None:
    """Do a task on a machine without a folder."""
    work(recipes, {**site, "sees": [*site["sees"], Path("/nowhere")]})


@pytest.mark.parametrize("lacks", ["folder", "package", "network"])
def test_a_machine_that_lacks_something_is_named(lacks, cluster, tmp_path, monkeypatch):
    recipe, said = LINE, "a machine of the cluster, cannot train this: it does not see /nowhere: expected"
    if lacks == "package":
        (tmp_path / "only_here.py").write_text("def work(*given): pass")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(cluster_of, "work", importlib.import_module("only_here").work)
        said = "a machine of the cluster cannot run subspaces: .*No module named 'only_here'; install it there as here"
    elif lacks == "network":
        recipe, said = dataclasses.replace(LINE, network="no_such_module:net"), "No module named 'no_such_module'"
    else:
        monkeypatch.setattr(cluster_of, "work", work_elsewhere)
    with pytest.raises((OSError, ImportError, ValueError), match=said):
        ss.train(recipe, out=tmp_path / "runs", ray=cluster, **QUIET)


def test_an_address_where_nobody_answers(ray, tmp_path):
    ray.shutdown()
    start = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionError, match=rf":{port} \(.*refused\): expected HOST:PORT; start one"):
        ss.train(LINE, out=tmp_path, ray=f"127.0.0.1:{port}", **QUIET)
    assert time.monotonic() - start < 30
    assert list(tmp_path.iterdir()) == []


# What shows without a cluster


def test_ray_that_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs Ray: pip install 'subspaces\[ray\]'"):
        ss.train(LINE, ray="auto", **QUIET)


def test_processes_of_torchrun_are_refused(ray, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    check(Execution(ray="auto"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="ray='auto': this is one of 2 processes"):
        ss.train(LINE, ray="auto", **QUIET)


def machine(**resources: float) -> dict[str, Any]:
    return {"Alive": True, "NodeManagerHostname": "far", "NodeID": "0", "Resources": resources}


@pytest.mark.parametrize(
    ("machines", "asked", "needs"),
    [
        ([machine(CPU=4)], {}, (1, 0.0)),
        ([machine(CPU=4)], {"cpus_per_run": 4}, (4, 0.0)),
        ([machine(CPU=4), machine(CPU=8, GPU=2)], {}, (1, 1.0)),
        ([machine(CPU=4), machine(CPU=8, GPU=2)], {"at_once": 3}, (1, 0.3333)),
        ([machine(CPU=8, GPU=2)], {"at_once": 3, "gpus_per_run": 0.5}, (1, 0.5)),
        ([machine(CPU=8, GPU=2)], {"device": "cpu"}, (1, 0.0)),
        ([machine(CPU=8, GPU=2), {**machine(CPU=64), "Alive": False}], {"device": "cpu", "cpus_per_run": 9}, None),
        ([machine(CPU=8), machine(CPU=1, GPU=2)], {"device": "cuda", "cpus_per_run": 2}, None),
    ],
)
def test_what_each_task_takes(machines, asked, needs):
    execution = Execution(ray="auto", **asked)
    if needs is None:
        said = r"each run needs \d cores .*, and no machine of the cluster has that .*: use --device cpu, or"
        with pytest.raises(ValueError, match=said):
            resources(machines, execution)
    else:
        assert resources(machines, execution) == needs
