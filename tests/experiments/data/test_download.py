"""Data sets from a server: fetched, compared with their checksums, unpacked and checked."""

import hashlib
import shutil
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import made
import pytest

from subspaces.experiments.data import SOURCES, DataError, absent, check, describe, get, load, published


class Server(ThreadingHTTPServer):
    """Serves bytes by name, and notes what was asked for; the first answers may break off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.broken = 0
        threading.Thread(target=partial(self.serve_forever, poll_interval=0.01), daemon=True).start()

    def publish(self, monkeypatch, name: str, files: dict[str, bytes]) -> None:
        """Serve files in the place of a data set's own, whose checksums they have from now on."""
        self.files |= files
        url = f"http://127.0.0.1:{self.server_address[1]}"
        checksums = {f"{url}/{file}": hashlib.md5(content).hexdigest() for file, content in files.items()}
        monkeypatch.setitem(SOURCES, name, SOURCES[name]._replace(files=checksums))


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.asked.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.server.broken else content)
        self.server.broken = max(0, self.server.broken - 1)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between two tries
    found = Server()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture
def small_mnist(tmp_path, monkeypatch, server):
    """MNIST with few images, as if that were what is published."""
    made.mnist(tmp_path / "publisher", packed=True)
    monkeypatch.setattr(published, "MNIST", made.FEW_MNIST)
    files = {path.name: path.read_bytes() for path in sorted((tmp_path / "publisher").iterdir())}
    server.publish(monkeypatch, "mnist", files)
    return files


def test_get(tmp_path, server, small_mnist):
    root, steps = tmp_path / "root", []
    assert "not a folder" in check("mnist", root)[0]
    assert get("mnist", root, lambda *step: steps.append(step)) == root
    assert check("mnist", root) == []
    assert len(load("mnist", root).train) == 20
    assert sorted(server.asked) == sorted(small_mnist)
    for name, content in small_mnist.items():
        assert (name, len(content), len(content)) in steps
    get("mnist", root)
    (root / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    get("mnist", root)
    assert server.asked[4:] == ["t10k-labels-idx1-ubyte.gz"]  # what is there and right is left alone
    expected = "mnist: 20 training and 10 test images of 1 × 28 × 28 in 10 classes, in "
    assert describe("mnist", root) == f"{expected}{root}"


def test_an_answer_that_breaks_off_is_asked_for_again(tmp_path, server, small_mnist):
    server.broken = 2
    get("mnist", tmp_path / "root")
    assert check("mnist", tmp_path / "root") == []
    assert len(server.asked) == 6


@pytest.mark.parametrize(("change", "error"), [(None, ConnectionError), (b"x", DataError)], ids=["gone", "other"])
def test_what_cannot_be_had_is_an_error_and_leaves_nothing(tmp_path, server, small_mnist, change, error):
    name = "t10k-labels-idx1-ubyte.gz"
    server.files |= {name: change} if change else {}
    if change is None:
        del server.files[name]
    with pytest.raises(error, match=f"/{name}: (404|.*hash of downloaded file)"):
        get("mnist", tmp_path / "root")
    left = {path.name for path in (tmp_path / "root" / "mnist").iterdir()}
    assert left == {each for each in small_mnist if each < name}


def test_get_says_what_is_still_in_the_way(tmp_path, server, small_mnist):
    root = tmp_path / "root"
    root.mkdir()
    (root / "t10k-labels-idx1-ubyte").write_bytes(b"old")
    with pytest.raises(DataError, match=r"was fetched to .*mnist, but: .*t10k-labels-idx1-ubyte: expected an array"):
        get("mnist", root)


@pytest.mark.parametrize(("kind", "ending"), [("gztar", "tar.gz"), ("zip", "zip")])
def test_an_archive_is_unpacked(tmp_path, monkeypatch, server, kind, ending):
    monkeypatch.setattr(published, "RECORDS", 7)
    made.cifar10(tmp_path / "publisher" / "cifar-10-batches-bin")
    archive = shutil.make_archive(str(tmp_path / "batches"), kind, tmp_path / "publisher")
    with open(archive, "rb") as content:
        server.publish(monkeypatch, "cifar10", {f"batches.{ending}": content.read()})
    root = tmp_path / "root"
    get("cifar10", root)
    assert len(load("cifar10", root).train) == 35
    assert {path.name for path in root.iterdir()} == {f"batches.{ending}", "cifar-10-batches-bin"}
    (root / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(b"short")  # as a killed process may leave it
    get("cifar10", root)  # unpacks the archive again, without a server
    assert check("cifar10", root) == []
    assert len(server.asked) == 1


def test_get_what_cannot_be_got(tmp_path):
    with pytest.raises(DataError, match=r"imagenet cannot be fetched.*register at https.*ROOT/train/<class>"):
        get("imagenet", tmp_path)
    with pytest.raises(DataError, match="cannot be fetched, because they are your own images: put them into DIR"):
        get("folder", tmp_path)
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
    made.cifar10(tmp_path)
    assert "expected 30,730,000 bytes" in check("cifar10", tmp_path)[0]
    with pytest.raises(ValueError, match="no data set is called"):
        check("nothing")


@pytest.mark.parametrize("name", ["mnist", "cifar10", "tiny-imagenet", "imagenet"])
def test_what_is_absent_is_told_with_what_fetches_it(tmp_path, name):
    for root in (tmp_path, tmp_path / "nowhere"):
        assert f"subspaces data get {name} --data" in absent(name, root)
    assert absent("digits", tmp_path / "nowhere") is None
