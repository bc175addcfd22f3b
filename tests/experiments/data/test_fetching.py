import gzip
import hashlib
import io
import tarfile
import threading
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import made
import numpy as np
import pytest

from subspaces.experiments.data import (
    SOURCES,
    DataError,
    absent,
    check,
    cifar10,
    describe,
    download,
    fetching,
    get,
    load,
    mnist,
)
from subspaces.experiments.data.sources import Published, Source

CONTENT = np.random.default_rng(0).bytes(300_000)


class Server(ThreadingHTTPServer):
    """Serves bytes by name; may ignore ranges, or break off each answer after so many bytes."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes], ranges: bool = True, limit: int | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.limit = files, ranges, limit
        self.asked: list[tuple[str, str | None]] = []
        threading.Thread(target=partial(self.serve_forever, poll_interval=0.01), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/folder"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name, wanted = self.path.rpartition("/")[2], self.headers.get("Range")
        self.server.asked.append((name, wanted))
        if name not in self.server.files:
            self.send_error(404)
            return
        content, start = self.server.files[name], 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = None if self.server.limit is None else start + self.server.limit
        self.wfile.write(content[start:end])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve():
    servers = []

    def start(files: dict[str, bytes] | None = None, **options) -> Server:
        servers.append(Server({"file": CONTENT} if files is None else files, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def published(content: bytes = CONTENT, name: str = "file", size: bool = True) -> Published:
    return Published(f"http://127.0.0.1:1/{name}", hashlib.md5(content).hexdigest(), len(content) if size else None)


# One file


@pytest.mark.parametrize("size", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
def test_fresh(tmp_path, serve, size, ranges):
    steps = []
    server = serve(ranges=ranges)
    target = download.fetch(published(size=size), tmp_path / "new", lambda *step: steps.append(step), server.url)
    assert target == tmp_path / "new" / "file"
    assert target.read_bytes() == CONTENT
    assert steps[-1] == ("file", 300_000, 300_000)
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    assert server.asked == [("file", None)]


def test_there_and_right_is_left_alone(tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    download.fetch(published(), tmp_path)  # nobody listens at its address


def test_there_and_wrong_is_replaced(tmp_path, serve):
    (tmp_path / "file").write_bytes(b"damaged")
    assert download.fetch(published(), tmp_path, base_url=serve().url).read_bytes() == CONTENT


@pytest.mark.parametrize("size", [True, False])
def test_goes_on_where_it_stopped(tmp_path, serve, size):
    (tmp_path / "file.part").write_bytes(CONTENT[:100_000])
    server = serve()
    assert download.fetch(published(size=size), tmp_path, base_url=server.url).read_bytes() == CONTENT
    assert server.asked == [("file", "bytes=100000-")]


def test_a_server_that_ignores_ranges_sends_everything_again(tmp_path, serve):
    (tmp_path / "file.part").write_bytes(b"x" * 100_000)
    server = serve(ranges=False)
    assert download.fetch(published(), tmp_path, base_url=server.url).read_bytes() == CONTENT
    assert server.asked == [("file", "bytes=100000-")]


def test_a_whole_part_needs_no_server(tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert download.fetch(published(), tmp_path).read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_begun_again(tmp_path, serve):
    (tmp_path / "file.part").write_bytes(CONTENT + b"x")
    assert download.fetch(published(), tmp_path, base_url=serve().url).read_bytes() == CONTENT


def test_broken_off_answers_are_continued(tmp_path, serve):
    server = serve(limit=90_000)
    assert download.fetch(published(), tmp_path, base_url=server.url).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == [None, "bytes=90000-", "bytes=180000-", "bytes=270000-"]


def test_without_progress_it_gives_up_and_keeps_what_came(tmp_path, serve):
    server = serve(limit=90_000, ranges=False)
    with pytest.raises(ConnectionError, match=r"stopped after 90,000 of 300,000 bytes.*run the same command again"):
        download.fetch(published(), tmp_path, base_url=server.url)
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:90_000]
    assert not (tmp_path / "file").exists()
    better = serve()
    assert download.fetch(published(), tmp_path, base_url=better.url).read_bytes() == CONTENT
    assert better.asked == [("file", "bytes=90000-")]


def test_interrupted_by_the_user(tmp_path, serve):
    def stop(_: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    server = serve()
    with pytest.raises(KeyboardInterrupt):
        download.fetch(published(), tmp_path, stop, server.url)
    assert not (tmp_path / "file").exists()
    assert download.fetch(published(), tmp_path, base_url=server.url).read_bytes() == CONTENT


@pytest.mark.parametrize("begun", [0, 1000])
def test_wrong_checksum_names_both_and_removes_the_file(tmp_path, serve, begun):
    wrong = b"?" + CONTENT[1:]
    if begun:
        (tmp_path / "file.part").write_bytes(wrong[:begun])
    expected, found = hashlib.md5(CONTENT).hexdigest(), hashlib.md5(wrong).hexdigest()
    with pytest.raises(DataError, match=f"file: md5 {found} of 300,000 bytes, expected {expected} of 300,000.*removed"):
        download.fetch(published(), tmp_path, base_url=serve({"file": wrong}).url)
    assert list(tmp_path.iterdir()) == []


def test_not_found(tmp_path, serve):
    with pytest.raises(ConnectionError, match=r"folder/file: the server answered 404 Not Found"):
        download.fetch(published(), tmp_path, base_url=serve({}).url)


def test_nobody_there(tmp_path):
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1/file: stopped after 0 of 300,000 bytes .*refused"):
        download.fetch(published(), tmp_path)


@pytest.mark.parametrize("address", ["file:///etc", "ftp://host", "/data"])
def test_only_http(tmp_path, address):
    with pytest.raises(ValueError, match=f"base_url='{address}': expected an address that begins with http"):
        download.fetch(published(), tmp_path, base_url=address)


# Whole data sets


@pytest.fixture
def small_mnist(tmp_path, monkeypatch):
    """MNIST with few images, as if that were what is published; returns the files by name."""
    arrays = made.mnist(tmp_path / "publisher", packed=True)
    monkeypatch.setattr(mnist, "TRAINING", 20)
    monkeypatch.setattr(mnist, "TEST", 10)
    monkeypatch.setattr(mnist, "MD5", {n: hashlib.md5(made.idx(a)).hexdigest() for n, a in arrays.items()})
    files = {path.name: path.read_bytes() for path in (tmp_path / "publisher").iterdir()}
    source = replace(SOURCES["mnist"], files=tuple(published(content, name) for name, content in files.items()))
    monkeypatch.setitem(SOURCES, "mnist", source)
    return files


def test_get_mnist(tmp_path, serve, small_mnist):
    server, root = serve(small_mnist), tmp_path / "root"
    assert "not a folder" in check("mnist", root)[0]
    assert get("mnist", root, base_url=server.url) == root
    assert check("mnist", root) == []
    assert len(mnist.load(root, 20, 10).train) == 20
    asked = len(server.asked)
    assert asked == 4
    get("mnist", root, base_url=server.url)
    (root / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    get("mnist", root, base_url=server.url)
    assert len(server.asked) == asked + 1
    assert check("mnist", root) == []


def test_get_says_what_is_still_in_the_way(tmp_path, serve, small_mnist):
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"old")
    with pytest.raises(DataError, match=r"was fetched to .*mnist, but: .*t10k-labels-idx1-ubyte: expected 18 bytes"):
        get("mnist", tmp_path, base_url=serve(small_mnist).url)


def test_check_finds_an_altered_pixel(tmp_path, small_mnist):
    for name, content in small_mnist.items():
        plain = bytearray(gzip.decompress(content))
        plain[-1] ^= 1
        (tmp_path / name.removesuffix(".gz")).write_bytes(plain)
    problems = check("mnist", tmp_path)
    assert len(problems) == 4
    assert all("the file was altered" in problem for problem in problems)


def test_get_cifar10_unpacks(tmp_path, serve, monkeypatch):
    made.cifar10(tmp_path / "publisher" / "cifar-10-batches-bin")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(tmp_path / "publisher" / "cifar-10-batches-bin", "cifar-10-batches-bin")
    content = packed.getvalue()
    source = replace(SOURCES["cifar10"], files=(published(content, "cifar-10-binary.tar.gz"),))
    monkeypatch.setitem(SOURCES, "cifar10", source)
    monkeypatch.setitem(fetching._PROBLEMS, "cifar10", lambda root: cifar10.load(root, records=7) and [])
    steps = []
    server, root = serve({"cifar-10-binary.tar.gz": content}), tmp_path / "root"
    get("cifar10", root, lambda *step: steps.append(step), base_url=server.url)
    assert len(cifar10.load(root, records=7).train) == 35
    assert {what for what, _, _ in steps} == {"cifar-10-binary.tar.gz", "unpacking cifar-10-binary.tar.gz"}
    (root / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(b"short")
    with pytest.raises(DataError, match=r"unpack to more than 1,000: .*--limit-gb"):
        get("cifar10", root, limit=1000)
    assert (root / "cifar-10-batches-bin" / "data_batch_1.bin").read_bytes() == b"short"
    get("cifar10", root)  # unpacks the archive again, without a server
    assert len(cifar10.load(root, records=7).train) == 35
    assert len(server.asked) == 1


def test_a_data_set_that_is_whole_is_not_fetched_again(tmp_path, serve, monkeypatch):
    """Its archive may be gone, and a mirror out of reach."""
    server = serve({})
    monkeypatch.setitem(fetching._PROBLEMS, "cifar10", lambda root: [])
    assert get("cifar10", tmp_path, base_url=f"http://127.0.0.1:{server.server_port}") == tmp_path
    assert server.asked == []


def test_get_what_cannot_be_got(tmp_path):
    with pytest.raises(DataError, match=r"imagenet cannot be fetched.*register at https.*ROOT/train/<class>"):
        get("imagenet", tmp_path)
    with pytest.raises(ValueError, match="no data set is called 'mnits': did you mean 'mnist'"):
        get("mnits", tmp_path)
    assert get("digits", tmp_path / "anywhere") == tmp_path / "anywhere"
    assert not (tmp_path / "anywhere").exists()


def test_check_and_describe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check("digits") == []
    assert describe("digits") == (
        "digits: 1,200 training and 597 test images of 1 × 8 × 8 in 10 classes, from scikit-learn"
    )
    assert "needs its files" in check("cifar10")[0]
    made.cifar10(tmp_path)
    assert len(check("cifar10", tmp_path)) == 6
    with pytest.raises(ValueError, match="no data set is called"):
        check("nothing")


@pytest.mark.parametrize("packed", [False, True])
def test_describe_says_which_version(tmp_path, monkeypatch, packed):
    made.mnist(tmp_path / "mnist", packed=packed)
    small = partial(mnist.load, training=20, test=10)
    monkeypatch.setitem(__import__("subspaces.experiments.data.loading", fromlist=["_"])._READERS, "mnist", small)
    assert describe("mnist", tmp_path) == (
        "mnist: 20 training and 10 test images of 1 × 28 × 28 in 10 classes, "
        f"{'gzipped' if packed else 'plain'} IDX files in {tmp_path / 'mnist'}"
    )
    assert len(load("mnist", tmp_path, validation=5).validation) == 5


@pytest.mark.parametrize("name", ["mnist", "cifar10", "tiny-imagenet", "imagenet"])
def test_what_is_absent_is_told_with_what_fetches_it(tmp_path, name):
    for root in (tmp_path, tmp_path / "nowhere"):
        assert f"subspaces data get {name} --data" in absent(name, root)
    assert absent("digits", tmp_path / "nowhere") is None


def test_files_that_are_there_are_looked_for_and_not_read(tmp_path):
    for name in ("train", "val"):
        (tmp_path / name).mkdir()
    assert absent("imagenet", tmp_path) is None
    for name in cifar10.BATCHES:
        (tmp_path / f"{name}.bin").write_bytes(b"")
    assert absent("cifar10", tmp_path) is None
    assert check("cifar10", tmp_path)


def test_sources_are_complete():
    from subspaces.experiments.data import NAMES

    assert tuple(SOURCES) == NAMES
    for name, source in SOURCES.items():
        assert isinstance(source, Source)
        assert source.name == name
        assert all((source.description, source.size, source.homepage, source.licence))
        assert bool(source.files) != bool(source.instructions or name == "digits")
        for file in (*source.files, *source.others):
            assert len(bytes.fromhex(file.md5)) == 16
            assert Path(file.name).name == file.name
            assert file.bytes > 0
