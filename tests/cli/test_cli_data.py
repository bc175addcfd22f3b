"""`subspaces data list | get | check`, against a server and files made here."""

import functools
import gzip
import hashlib
import http.server
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from subspaces.cli import app
from subspaces.experiments.data import SOURCES, loading, mnist


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)], prog_name="subspaces", env={"COLUMNS": "240"})


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A server with a small MNIST, whose checksums are the published ones for a while."""
    folder = tmp_path / "server"
    folder.mkdir()
    random = np.random.default_rng(0)
    published, plain = [], {}
    for file, shape in zip(SOURCES["mnist"].files, [(20, 28, 28), (20,), (10, 28, 28), (10,)], strict=True):
        array = idx(random.integers(0, 10, shape, np.uint8))
        content = gzip.compress(array)
        (folder / file.name).write_bytes(content)
        plain[file.name.removesuffix(".gz")] = md5(array)
        published.append(replace(file, md5=md5(content), bytes=len(content)))
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], files=tuple(published)))
    monkeypatch.setattr(mnist, "MD5", plain)
    monkeypatch.setattr(mnist, "TRAINING", 20)
    monkeypatch.setattr(mnist, "TEST", 10)
    monkeypatch.setitem(loading._READERS, "mnist", functools.partial(mnist.load, training=20, test=10))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    server.daemon_threads = True
    thread = threading.Thread(target=functools.partial(server.serve_forever, poll_interval=0.01), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()


def test_list_shows_every_data_set() -> None:
    output = call("list").stdout
    for source in SOURCES.values():
        (line,) = (line for line in output.splitlines() if line.split()[:1] == [source.name])
        for text in (source.description, source.size, source.licence):
            assert text in line


def test_get_fetches_and_check_agrees(mirror: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = mirror
    result = call("get", "mnist", "--data", tmp_path / "data", "--base-url", url)
    assert result.exit_code == 0, result.output
    assert "mnist: 20 training and 10 test images of 1 × 28 × 28" in result.stdout
    assert "train-images-idx3-ubyte.gz" in result.stderr  # the bar
    checked = call("check", "mnist", "--data", tmp_path / "data")
    assert checked.exit_code == 0
    assert checked.stdout == result.stdout
    again = call("get", "mnist", "--data", tmp_path / "data", "--base-url", "http://127.0.0.1:1", "--quiet")
    assert again.exit_code == 0
    assert again.output == result.stdout


def test_an_error_is_one_line_and_the_same_command_works_later(mirror: tuple[str, Path], tmp_path: Path) -> None:
    url, server = mirror
    name = SOURCES["mnist"].files[0].name
    (server / name).rename(server / "away")
    stopped = call("get", "mnist", "--data", tmp_path, "--base-url", url, "--quiet")
    assert stopped.exit_code == 1
    assert stopped.stderr.startswith("error: ")
    assert "404" in stopped.stderr
    assert stopped.stderr.count("\n") == 1
    (server / "away").rename(server / name)
    assert call("get", "mnist", "--data", tmp_path, "--base-url", url, "--quiet").exit_code == 0


def test_check_says_what_is_wrong(mirror: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = mirror
    call("get", "mnist", "--data", tmp_path, "--base-url", url, "--quiet")
    file = tmp_path / "mnist" / SOURCES["mnist"].files[0].name
    file.write_bytes(file.read_bytes()[:100])
    result = call("check", "mnist", "--data", tmp_path)
    assert result.exit_code == 1
    assert result.stdout.startswith("wrong: ")
    assert file.name in result.stdout


def test_check_of_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("check", "cifar10")
    assert result.exit_code == 1
    assert "`subspaces data get cifar10 --data data`" in result.stdout


def test_digits_need_no_files() -> None:
    for command in ("check", "get"):
        result = call(command, "digits")
        assert result.exit_code == 0
        assert "1,200 training and 597 test images" in result.stdout


def test_what_cannot_be_fetched_says_how_to_get_it(tmp_path: Path) -> None:
    result = call("get", "imagenet", "--data", tmp_path, "--quiet")
    assert result.exit_code == 1
    assert "register at https://www.image-net.org" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["get", "check"])
def test_an_unknown_data_set_names_the_nearest(command: str) -> None:
    result = call(command, "cifar")
    assert result.exit_code == 2
    assert result.stderr == "error: no data set is called 'cifar': did you mean 'cifar10'?\n"


def test_an_address_that_is_none_is_one_line(tmp_path: Path) -> None:
    result = call("get", "mnist", "--data", tmp_path, "--base-url", "file:///etc", "--quiet")
    assert result.exit_code == 1
    assert "http://" in result.stderr


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x"])
def test_a_limit_that_is_none_is_a_wrong_command(value: str) -> None:
    result = call("get", "digits", "--limit-gb", value)
    assert result.exit_code == 2
    assert "--limit-gb" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_limit_arrives_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int | None] = []
    monkeypatch.setattr("subspaces.experiments.data.get", lambda *_, limit, **__: seen.append(limit))
    for options in (["--limit-gb", "0.5"], []):
        assert call("get", "digits", *options).exit_code == 0
    assert seen == [500_000_000, None]
