"""Whose network factories are called: those of runs that this user trained on this machine.

A run folder may come from anybody, and its config.json may name any `package.module:factory`. To measure the run is to
import that module and to call the factory. So a run is signed when it is trained, with a key that the user has here:

    signature = HMAC-SHA256(key, all fields of the recipe but its name)

The key is 32 random bytes in `$XDG_CONFIG_HOME/subspaces/key` or `~/.config/subspaces/key`, made when it is first
needed. It signs runs and does nothing else: without it the runs signed with it need `--trust`, as on any other machine.
Networks of this package, of timm and of torchvision need no signature.
"""

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.experiments.training.recipe import Recipe
from subspaces.networks.factories import is_factory

FIELD = "signature"
LENGTH = 32


class Caller:
    """Stands for the signature of a run whose recipe the caller has named, factory and all: it needs none."""


def signed(recipe: Recipe) -> dict[str, Any]:
    """Return the content of config.json: the recipe's fields and, where it names a factory, the user's signature."""
    fields = recipe.to_dict()
    if is_factory(recipe.network) and (key := _key() or _new_key()):
        fields[FIELD] = signature(recipe, key)
    return fields


def separated(config: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the recipe's fields of a config.json, and its signature if it has one."""
    fields = dict(config)
    return fields, fields.pop(FIELD, None)


def signature(recipe: Recipe, key: bytes) -> str:
    """Return what only the owner of the key can say of a recipe."""
    return hmac.new(key, recipe.content, hashlib.sha256).hexdigest()


def may_build(recipe: Recipe, found: Any) -> bool:
    """Say whether the network of a recipe that was read from a folder may be built, given the signature there."""
    if not is_factory(recipe.network):
        return True
    key = _key() if isinstance(found, str) else None
    return key is not None and hmac.compare_digest(signature(recipe, key).encode(), found.encode(errors="replace"))


def question(recipe: Recipe) -> str:
    """Return what would be run, and what to do if that is wanted."""
    module, _, factory = recipe.network.partition(":")
    return (
        f"it names the network {recipe.network!r} and lacks your signature, which runs have that you trained on this "
        f"machine; to measure it would import module {module!r} and call {factory!r}: pass --trust (trust=True) if you "
        "trust it"
    )


def key_file() -> Path | None:
    """Return where the user's key is; None for a user without a home."""
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    folder = configured if configured.is_absolute() else Path(os.path.expanduser("~")) / ".config"
    return folder / "subspaces" / "key" if folder.is_absolute() else None


def _key() -> bytes | None:
    """Return the key; None where there is none of this user's."""
    path = key_file()
    if path is None or not path.is_file():
        return None
    try:
        with open(path, "rb") as file:
            key, modes = file.read(LENGTH + 1), (os.fstat(file.fileno()), path.parent.stat())
    except OSError:
        return None
    if any(one.st_uid != os.geteuid() for one in modes):
        return None
    anew = "or remove the file: a new key is made, and runs signed with the old one need --trust"
    if modes[0].st_mode & (stat.S_IRWXG | stat.S_IRWXO) or modes[1].st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ArgumentError(
            f"{path}: others can read or change the key that signs your runs; "
            f"chmod 700 {path.parent} && chmod 600 {path}, {anew}"
        )
    if len(key) != LENGTH:
        raise ArgumentError(f"{path}: expected a key of {LENGTH} bytes; put it back, {anew}")
    return key


def _new_key() -> bytes | None:
    """Make a key and return it, or the one that another process has made at the same time; None if it cannot be."""
    path = key_file()
    if path is None:
        return None
    partial = path.with_name(f".key.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(LENGTH))
                file.flush()
                os.fsync(file.fileno())
            os.link(partial, path)  # which, unlike a renaming, leaves the key of the first who comes
        finally:
            partial.unlink(missing_ok=True)
    except FileExistsError:
        pass
    except OSError:  # a home that cannot be written to: training goes on, without a signature
        return None
    return _key()
