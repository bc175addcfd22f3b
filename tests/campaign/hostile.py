"""Folders and archives of strangers: modules that lie there, networks that a configuration names, escapes, bombs."""

import gzip
import io
import os
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign import malice, processes, scenes, verdict, warm
from campaign.scenes import Scene

Told = tuple[str, str, str, warm.Ended]
Case = tuple[str, Callable[[Path, Path], Told]]
NETWORKS = ("os:abort", "sys:exit", "os:fork", "signal:pause", "evil:make", "runs.evil:make")
SHADOWS = ("sklearn", "matplotlib", "plotly", "scipy", "torchmetrics", "PIL", "json", "numpy", "rich", "safetensors")
ZEROS = 300 << 20  # bytes of a bomb


def cases(made: dict[str, Scene], base: Path) -> list[Case]:
    """Return all cases; runs whose configuration names a stranger's network are trained here, in another home."""
    received = base / "received"
    found: list[Case] = []
    for name in NETWORKS:
        folder = received / name.replace(":", "-").replace(".", "-")
        argv = (*scenes.TRAIN, "--network", name)
        scenes.run(argv, folder, first=_any_network, home=base / "stranger")
        (run,) = (f"runs/{path.name}" for path in (folder / "runs").iterdir())
        commands = [
            ("evaluate", run, *scenes.EVALUATE),
            argv,
            ("report", run),
            ("plot", "training", run, "-o", "f.png"),
        ]
        found += [("a network of a stranger", _stranger(folder, run, command)) for command in commands]
    evaluated = made["evaluated"]
    for scene, argv in (
        ("finished", ("evaluate", ".", *scenes.EVALUATE)),
        ("evaluated", ("plot", "along", ".", "-o", "f.png")),
        ("evaluated", ("report", ".", "-o", "r.html")),
    ):
        (folder,) = (made[scene].folder / "runs").iterdir()
        found.append(("modules in the current folder", _shadowed(folder, argv)))
    found += [("an archive", _archive(name, make)) for name, make in ARCHIVES.items()]
    found += [("a pickle as data", _batches(argv)) for argv in BATCHES]
    found += [("a bomb as data", _bomb), ("a name with markup", _markup(evaluated))]
    return found


def _any_network() -> None:
    """Let every name of a network mean a small one: so a stranger makes a folder in which all fits together."""
    from subspaces import networks
    from subspaces.networks import registry

    build = registry.build

    def small(name: str, **settings: Any) -> Any:
        return build("mlp", **settings)

    networks.build = registry.build = small


def _judged(ended: warm.Ended, refused: bool) -> tuple[str, str]:
    if bad := verdict.crashed(ended):
        return "", bad
    if ended.code == 0:
        return ("", "exit code 0, and it should have been refused") if refused else ("harmless", "")
    return "refused", verdict.unclear(ended)


def _stranger(source: Path, run: str, argv: tuple[str, ...]) -> Callable[[Path, Path], Told]:
    """Open a run folder that came from somewhere else, with a module of its own beside it and in it."""
    loads = argv[0] == "evaluate"

    def case(folder: Path, marker: Path) -> Told:
        shutil.copytree(source, folder)
        for place in (folder, folder / "runs", folder / run):
            (place / "evil.py").write_text(f"{malice.code(marker)}\nmake = None\n")
        ended = warm.command(argv, folder)
        named = argv[-1] if argv[0] == "train" else source.name
        told = f"a received folder whose config names {named}; {' '.join(argv)}"
        good, bad = _judged(ended, refused=loads)
        return told, good, bad, ended

    return case


def _shadowed(run: Path, argv: tuple[str, ...]) -> Callable[[Path, Path], Told]:
    """Start the command in a run folder in which modules lie that have the names of packages."""

    def case(folder: Path, marker: Path) -> Told:
        shutil.copytree(run, folder)
        for name in SHADOWS:
            (folder / f"{name}.py").write_text(f"{malice.code(marker)}\nraise SystemExit(0)\n")
        (folder / "package_data").mkdir()
        (folder / "package_data" / "plotly.min.js").write_text("alert('of a stranger')")
        ended = processes.process(argv, folder)
        good, bad = _judged(ended, refused=False)
        if (folder / "r.html").is_file() and "of a stranger" in (folder / "r.html").read_text():
            bad = "the page holds a script of the current folder"
        return f"{', '.join(SHADOWS)}.py in the current folder; {' '.join(argv)}", good, bad, ended

    return case


def _tar(*members: tuple[str, bytes, bytes]) -> bytes:
    """Return a tar file of (name, type, content or target of a link)."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(text)
            else:
                member.linkname = text.decode()
            tar.addfile(member, io.BytesIO(text) if kind == tarfile.REGTYPE else None)
    return content.getvalue()


def _zip(name: str, text: bytes, mode: int = 0o100644) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        member.compress_type = zipfile.ZIP_DEFLATED
        packed.writestr(member, text)
    return content.getvalue()


FILE = tarfile.REGTYPE
ARCHIVES: dict[str, Callable[[], tuple[str, bytes]]] = {
    "..": lambda: ("a.tar.gz", _tar(("../escaped", FILE, b"x"))),
    "an absolute path": lambda: ("a.tar.gz", _tar(("/tmp/escaped", FILE, b"x"))),
    "a link, then a file through it": lambda: ("a.tgz", _tar(("l", tarfile.SYMTYPE, b".."), ("l/escaped", FILE, b"x"))),
    "a hard link": lambda: ("a.tar.gz", _tar(("l", tarfile.LNKTYPE, b"../outside"))),
    "a pipe": lambda: ("a.tar.gz", _tar(("p", tarfile.FIFOTYPE, b""))),
    "a device": lambda: ("a.tar.gz", _tar(("d", tarfile.CHRTYPE, b""))),
    ".. in a zip": lambda: ("a.zip", _zip("../escaped", b"x")),
    "a backslash in a zip": lambda: ("a.zip", _zip("..\\escaped", b"x")),
    "a link in a zip": lambda: ("a.zip", _zip("l", b"..", 0o120777)),
    "a bomb in a zip": lambda: ("a.zip", _zip("zeros", bytes(ZEROS))),
    "a bomb in a tar file": lambda: ("a.tar.gz", _tar(("zeros", FILE, bytes(ZEROS)))),
    "half an archive": lambda: ("a.tar.gz", _tar(("a", FILE, os.urandom(20_000)))[:9000]),
    "no archive": lambda: ("a.zip", b"no archive"),
}


def _archive(name: str, make: Callable[[], tuple[str, bytes]]) -> Callable[[Path, Path], Told]:
    """Unpack an archive; what is outside of the folder for it stays as it is, and a bomb is not unpacked."""

    def case(folder: Path, marker: Path) -> Told:
        folder.mkdir()
        file, content = make()
        (folder / file).write_bytes(content)
        (folder / "outside").write_text("as it was")
        before = verdict.snapshot(folder)

        def unpack() -> None:
            from subspaces.experiments.data import archives
            from subspaces.experiments.data.dataset import DataError

            try:
                archives.unpack(folder / file, folder / "into")
            except DataError as error:
                raise SystemExit(str(error)) from None

        ended = warm.child(unpack, folder)
        good, bad = _judged(ended, refused=True)
        left = verdict.altered(before, verdict.snapshot(folder))
        return f"an archive with {name}", good, bad or (f"it wrote {left[0]}" if left else ""), ended

    return case


BATCHES = (
    ("data", "check", "cifar10", "--data", "."),
    ("train", "cifar10-standard", "--data", ".", "--epochs", "1", "--quiet"),
)


def _batches(argv: tuple[str, ...]) -> Callable[[Path, Path], Told]:
    """Read batches of CIFAR-10 that are pickles of a stranger."""

    def case(folder: Path, marker: Path) -> Told:
        target = folder / "cifar-10-batches-py"
        target.mkdir(parents=True)
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            (target / name).write_bytes(pickle.dumps(malice.Payload(marker)))
        ended = warm.command(argv, folder)
        bad = verdict.crashed(ended) or ("" if ended.code else "exit code 0, and it should have been refused")
        return f"batches that are pickles; {' '.join(argv)}", "refused", bad, ended

    return case


def _bomb(folder: Path, marker: Path) -> Told:
    """Read MNIST files that unpack to more than there should be."""
    folder.mkdir()
    with gzip.open(folder / "train-images-idx3-ubyte.gz", "wb", 1) as file:
        for _ in range(ZEROS >> 20):
            file.write(bytes(1 << 20))
    for name in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (folder / name).write_bytes(b"")
    argv = ("train", "mnist-standard", "--data", ".", "--quiet")
    ended = warm.command(argv, folder)
    good, bad = _judged(ended, refused=True)
    return f"a bomb as a file of images; {' '.join(argv)}", good, bad, ended


def _markup(scene: Scene) -> Callable[[Path, Path], Told]:
    """Write the page of a run whose folder is called like a script."""
    text = "<img src=x onerror=alert(1)>"

    def case(folder: Path, marker: Path) -> Told:
        scene.copy(folder)
        (run,) = (folder / "runs").iterdir()
        run.rename(folder / text)
        ended = warm.command(("report", text, "-o", "r.html"), folder)
        good, bad = _judged(ended, refused=False)
        if not bad and ended.code == 0 and text in (folder / "r.html").read_text():
            bad = "the name of a folder is markup in the page"
        return f"a run folder called {text}; report", good, bad, ended

    return case
