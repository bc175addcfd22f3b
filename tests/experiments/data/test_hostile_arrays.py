"""Arrays, notes and published files that somebody sent: none takes more memory than its own size allows."""

import io
import os
import zipfile
from pathlib import Path

import made
import numpy as np
import pytest
from made import call, own

from subspaces.experiments.data import DataError, contents, fingerprint_of, load
from subspaces.experiments.evaluating.selection import domain_of
from subspaces.images.reading import read_arrays, read_text


@pytest.mark.parametrize("damage", ["bomb", "promise", "objects", "numbers", "missing"])
def test_notes_that_somebody_made(tmp_path: Path, damage: str) -> None:
    root = own(tmp_path)
    before = fingerprint_of(root)
    arrays = dict(np.load(root / contents.FILE))
    if damage == "bomb":
        arrays["paths"] = np.zeros(1 << 27, np.uint8)
        np.savez_compressed(root / contents.FILE, **arrays)
    elif damage == "objects":
        np.savez(root / contents.FILE, **arrays | {"paths": np.array([None] * 6, object)})
    elif damage == "numbers":  # of which bytes() would be as long
        np.savez(root / contents.FILE, **arrays | {"digests": np.full(6, 10**12)})
    elif damage == "missing":
        np.savez(root / contents.FILE, paths=arrays["paths"])
    else:
        content = io.BytesIO()
        np.lib.format.write_array_header_1_0(content, {"descr": "|u1", "fortran_order": False, "shape": (10**13, 0)})
        with zipfile.ZipFile(root / contents.FILE, "w") as file:
            for name in arrays:
                file.writestr(f"{name}.npy", content.getvalue())
    assert fingerprint_of(root) == before


def test_arrays_are_as_large_as_their_file_says(tmp_path: Path) -> None:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "|u1", "fortran_order": False, "shape": (10**13,)})
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("x.npy", content.getvalue() + b"123")
    with pytest.raises(ValueError, match="x is uint8"):
        read_arrays(tmp_path / "x.npz", {"x": "u"})


@pytest.mark.parametrize("damage", ["pipe", "zip", "bomb", "objects", "text", "unknown"])
def test_arrays_of_a_new_domain(tmp_path: Path, damage: str) -> None:
    data, path, arrays = load("digits"), tmp_path / "x.npz", {"images": np.zeros((5, 8, 8), np.uint8)}
    np.savez(path, **arrays, labels=np.arange(5))
    assert len(domain_of(data, None, 1, path).images) == 5
    if damage == "zip":
        np.savez_compressed(path, images=arrays["images"])
    elif damage == "objects":
        np.savez(path, images=np.array([None]), labels=np.arange(1))
    elif damage == "bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("images.npy", "w") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (10**10, 8, 8)}
            np.lib.format.write_array_header_1_0(file, header)
    elif damage == "unknown":
        content = bytearray(path.read_bytes())
        content[content.index(b"PK\x01\x02") + 10] = 99  # how the first array is compressed
        path.write_bytes(content)
    else:
        path.unlink()
        path.write_bytes(b"text") if damage == "text" else os.mkfifo(path)
    with pytest.raises(DataError, match=r"x\.npz: "):
        domain_of(data, None, 1, path)


def test_text_that_is_none(tmp_path: Path) -> None:
    made.tiny_imagenet(tmp_path)
    (tmp_path / "words.txt").write_bytes(b"n07\t\xff\n")
    with pytest.raises(DataError, match=r"words\.txt: is not text in UTF-8"):
        read_text(tmp_path / "words.txt")
    (tmp_path / "wnids.txt").write_bytes(b"\xff")
    result = call("data", "check", "tiny-imagenet", "--data", tmp_path)
    assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
    with open(tmp_path / "wnids.txt", "wb") as file:
        file.truncate(1 << 40)
    assert "more than 67,108,864 bytes of text" in call("data", "check", "tiny-imagenet", "--data", tmp_path).stdout


@pytest.mark.parametrize("payload", [b"\x80\x02" + b"]" + b"2" * 100 + b".", b"(" + b"\x8d" + b"\xff" * 8, b""])
def test_a_pickle_is_compared_before_it_is_read(tmp_path: Path, payload: bytes) -> None:
    made.cifar10(tmp_path, made.write_python)
    for name in made.BATCHES:
        (tmp_path / name).write_bytes(payload)
    for line in call("data", "check", "cifar10", "--data", tmp_path).stdout.splitlines():
        assert f"bytes, found {len(payload)}: get the file again" in line
    with pytest.raises(DataError, match="data_batch_1: expected 31,035,704 bytes"):
        load("cifar10", tmp_path)
    with open(tmp_path / "data_batch_1", "wb") as file:
        file.truncate(31_035_704)
    with pytest.raises(DataError, match=r"data_batch_1: md5 .*, published c99cafc152244af753f735de768cd75f"):
        load("cifar10", tmp_path)
