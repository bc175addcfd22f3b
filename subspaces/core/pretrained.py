"""Families as folders and repositories in the way of the Hugging Face hub.

    model.safetensors   the file that `subspaces.save` writes
    config.json         what the family is: it only describes, and has to agree with the file
    README.md           the model card

Nothing in a folder is executed, imported or called: the network comes from the caller.
"""

import importlib
import json
import os
import re
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from torch import nn

from subspaces.core import checks, distributed, storage
from subspaces.core.initial import Factory, GetGroups
from subspaces.core.model_card import MARK, ModelCard, dtypes
from subspaces.core.shapes import Shape
from subspaces.core.storage import FileError
from subspaces.errors import ArgumentError, MissingPackageError, UserError
from subspaces.text import printable
from subspaces.version import __version__

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
LIBRARY = "subspaces"
_LARGEST = 2**20  # bytes of a config
_REMEDY = "use another copy of the folder, as save_pretrained wrote it"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


class HubError(UserError, OSError):
    """A request to the Hugging Face hub that failed or was refused."""


class Pretrained(nn.Module):
    """The methods of `Subspace` that write and read folders and repositories."""

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        shared: bool = True,
        card: bool = True,
        license: str | None = None,
        tags: Iterable[str] = (),
        metrics: Any = None,
    ) -> Path:
        """Write the family as a folder, `model.safetensors`, `config.json` and a model card, and return its path.

        Each file is replaced whole or not at all. What another library or a person wrote is not replaced: another
        model, or a README.md without the card's own mark, is an error. All ranks of a distributed family call it.

        Args:
            folder: is made if it does not exist.
            shared: write frozen parameters too, as in `subspaces.save`.
            card: write README.md; False leaves one that is there.
            license: on the card, an identifier of the hub such as "mit".
            tags: on the card, words to be found by.
            metrics: on the card, numbers by name, an `Evaluation`, or text.

        Example:
            >>> family.save_pretrained("family", license="mit", metrics={"accuracy": 0.9})
            >>> family = ss.Subspace.from_pretrained("family", make_net)
        """
        target = checks.folder("folder", folder)
        described = ModelCard.of(license, tags, metrics) if checks.flag("card", card) else None
        return _write(self, target, target.resolve().name, described, shared)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        network: nn.Module | Factory,
        *,
        shape: Shape | None = None,
        groups: GetGroups | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = False,
    ) -> Self:
        """Read a family from a folder that `save_pretrained` wrote, or from a repository of the Hugging Face hub.

        Args:
            source: a folder, which comes first, or else the id of a repository, such as "user/name".
            network: a module of the same architecture, which is copied, or its factory.
            shape: needed only for a shape of your own.
            groups: the function that made its optimiser groups, if the family had one.
            revision: of a repository, a branch, tag or commit.
            token: of a private repository; by default the one of `hf auth login`.
            cache_dir: where downloads are kept; by default the hub's own cache.
            local_files_only: take a download that is there already, without a request.

        Example:
            >>> family = ss.Subspace.from_pretrained("family", make_net)
            >>> family = ss.Subspace.from_pretrained("user/name", make_net, revision="v1")
        """
        place = checks.folder("source", source)
        if place.is_dir():
            if revision is not None:
                raise ArgumentError(
                    f"from_pretrained({checks.shown(source)}, revision={checks.shown(revision)}): there is a folder of "
                    "that name, which comes first and has no revisions; leave revision out, or rename the folder"
                )
        else:
            options = {"token": token, "cache_dir": cache_dir, "local_files_only": local_files_only}
            place = _downloaded(source, revision=revision, **options)
        config = _config(place / CONFIG)
        if not (place / WEIGHTS).is_file():
            raise FileError(f"{place} has no {WEIGHTS}: {_REMEDY}")
        family = storage.load_as(cls, place / WEIGHTS, network, shape, groups=groups)
        for name, found in _description(family).items():
            if name not in config or json.dumps(config[name]) != json.dumps(found):
                said = checks.shown(config[name]) if name in config else "missing"
                raise FileError(
                    f"{place / CONFIG} contradicts {WEIGHTS}: {name} is {said}, and {checks.shown(found)} in the "
                    f"weights: {_REMEDY}"
                )
        return family

    def push_to_hub(
        self,
        repo_id: str,
        *,
        create: bool = False,
        private: bool | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        message: str = "Upload a family of subspaces",
        shared: bool = True,
        card: bool = True,
        license: str | None = None,
        tags: Iterable[str] = (),
        metrics: Any = None,
    ) -> str:
        """Upload what `save_pretrained` writes to a repository of the Hugging Face hub, and return the commit's URL.

        Needs the package huggingface_hub (`pip install 'subspaces[hub]'`). The files of these names are replaced there.

        Args:
            repo_id: of the repository, such as "user/name".
            create: create the repository if it does not exist.
            private: with create=True, whether a new repository is private.
            revision: the branch to commit to, by default the main one.
            token: by default the one of `hf auth login`, or of the variable HF_TOKEN.
            message: of the commit.
            shared: write frozen parameters too.
            card: replace the repository's README.md; False leaves it.
            license: on the card, as in `save_pretrained`; so are `tags` and `metrics`.
            tags: on the card.
            metrics: on the card.

        Example:
            >>> family.push_to_hub("user/name", create=True, license="mit")
        """
        _check_repository("repo_id", repo_id)
        if not checks.flag("create", create) and private is not None:
            raise ArgumentError(f"private={private!r} without create=True: it is a setting of a new repository")
        described = ModelCard.of(license, tags, metrics) if checks.flag("card", card) else None
        family: Any = self
        hub = _Hub("push_to_hub", f"{repo_id!r} could not be uploaded to", token)
        distributed.on_first(family.mesh, lambda: hub.prepare(repo_id, create, private))
        with tempfile.TemporaryDirectory() as folder:
            _write(family, Path(folder), repo_id, described, shared)
            return distributed.on_first(family.mesh, lambda: hub.upload(repo_id, folder, revision, message))


# A folder


def _write(family: Any, folder: Path, source: str, card: ModelCard | None, shared: bool) -> Path:
    """Write a folder that `from_pretrained(source, …)` reads."""
    config = {"library_name": LIBRARY, "library_version": __version__, "network": type(family.template).__name__}
    text = None if card is None else card.text(family, source, checks.flag("shared", shared))

    def describe() -> None:
        storage.write(folder / CONFIG, json.dumps({**config, **_description(family)}, indent=2).encode() + b"\n")
        if text is not None:
            storage.write(folder / CARD, text.encode())

    distributed.on_first(family.mesh, lambda: _make_room(folder, card is not None))
    storage.save(family, folder / WEIGHTS, shared)
    distributed.on_first(family.mesh, describe)
    return folder


def _description(family: Any) -> dict[str, Any]:
    """Return what a config says that the weights say too, as it comes back from JSON."""
    return {
        "format_version": storage.VERSION,
        "shape": storage.describe(family.shape),
        "vertices": family.shape.vertices,
        "layerwise": family.layerwise,
        "groups": family.options is not None,
        "weights_per_vertex": sum(omega.shape[1] for omega in family.omega.values()),
        "dtypes": dtypes(family),
    }


def _make_room(folder: Path, card: bool) -> None:
    """Make the folder, unless it holds what would be lost."""
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"{folder} is a file: expected a folder, or the name of a new one")
    folder.mkdir(parents=True, exist_ok=True)
    ours = f"{folder} holds {{}}, which save_pretrained of a family did not write: pass another folder, or {{}}"
    if (folder / CONFIG).exists():
        try:
            _config(folder / CONFIG)
        except FileError:
            raise ArgumentError(ours.format(CONFIG, "remove it")) from None
    if (folder / WEIGHTS).exists():
        try:
            known = storage.read_header(folder / WEIGHTS).get("format") == storage.FORMAT
        except storage.DamageError:
            known = False
        if not known:
            raise ArgumentError(ours.format(WEIGHTS, "remove it"))
    if card and (folder / CARD).exists() and MARK.encode() not in (folder / CARD).read_bytes():
        raise ArgumentError(ours.format(CARD, "card=False to keep it"))


def _config(path: Path) -> dict[str, Any]:
    """Return the content of a config, which describes a family and nothing else."""
    if not path.is_file():
        raise FileError(f"{path.parent} has no {path.name}: expected a folder that save_pretrained of a family wrote")
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    try:
        found = json.loads(content) if len(content) <= _LARGEST else None
    except (ValueError, RecursionError) as error:
        raise storage.damaged(path, f"it is no JSON: {printable(str(error))[:100]}", _REMEDY) from None
    if not isinstance(found, dict):
        raise storage.damaged(path, f"expected a JSON object of at most {_LARGEST} bytes", _REMEDY)
    if found.get("library_name") != LIBRARY:
        raise FileError(
            f"{path} is of library {checks.shown(found.get('library_name'))}, expected {LIBRARY!r}: load a network "
            "of another library with that library, and make a family of it with ss.Subspace(network, shape)"
        )
    return found


# A repository


def _check_repository(name: str, value: Any) -> None:
    if not isinstance(value, str) or not _REPOSITORY.fullmatch(value):
        raise ArgumentError(f"{name}={checks.shown(value)}: expected the id of a repository, such as 'user/name'")


def _downloaded(source: Any, *, token: Any, **options: Any) -> Path:
    """Return the folder with the files of one commit of a repository."""
    if not isinstance(source, str) or not _REPOSITORY.fullmatch(source):
        kind = "is a file, which subspaces.load reads" if os.path.exists(source) else "is no folder"
        raise FileError(
            f"{checks.shown(source)} {kind}: expected a folder, or the id of a repository such as 'user/name'"
        )
    nothing = f"there is no folder {source!r} here"
    hub = _Hub(f"{nothing}; the download of a repository", f"{nothing}, and it could not be downloaded from", token)
    return hub.download(source, **options)


class _Hub:
    """The requests to the hub, with the errors of its client as `HubError`."""

    def __init__(self, needed_by: str, what: str, token: str | bool | None) -> None:
        try:
            hub, errors = (importlib.import_module(f"huggingface_hub{name}") for name in ("", ".errors"))
        except ImportError:
            raise MissingPackageError(f"{needed_by} needs huggingface_hub: pip install 'subspaces[hub]'") from None
        self.what, self.errors = what, errors
        self.api = hub.HfApi(token=token, library_name=LIBRARY, library_version=__version__)

    def prepare(self, repo_id: str, create: bool, private: bool | None) -> None:
        """Create the repository, or find out whether it exists before anything is written."""
        with self._explained():
            if create:
                self.api.create_repo(repo_id, private=private, exist_ok=True)
            else:
                self.api.repo_info(repo_id)

    def upload(self, repo_id: str, folder: str, revision: str | None, message: str) -> str:
        """Commit the files of a folder and return the URL of the commit."""
        with self._explained():
            found = self.api.upload_folder(
                repo_id=repo_id, folder_path=folder, revision=revision, commit_message=message
            )
        return str(found.commit_url)

    def download(self, repo_id: str, **options: Any) -> Path:
        """Return the folder that holds the files of one commit."""
        with self._explained():
            return Path(self.api.snapshot_download(repo_id, allow_patterns=[WEIGHTS, CONFIG], **options))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        known = self.errors
        try:
            yield
        except (OSError, ValueError, RuntimeError, *known.HfHubHTTPError.__bases__) as error:  # of the HTTP library
            remedy = "check the id, the connection, and the variable HF_ENDPOINT if it is set"
            if isinstance(error, known.RepositoryNotFoundError):
                remedy = "check the id, and the token if it is private; push_to_hub creates one with create=True"
            elif isinstance(error, known.RevisionNotFoundError):
                remedy = "check revision=, a branch, tag or commit of the repository"
            said = textwrap.shorten(printable(" ".join(str(error).split())), 200, placeholder=" …")
            raise HubError(f"{self.what} the hub ({type(error).__name__}: {said}): {remedy}") from None
