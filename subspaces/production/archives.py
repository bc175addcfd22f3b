"""What a .pt2 file may hold before torch is let near it.

`torch.export.load` trusts its file. It unpickles a tensor or an object where the file says that it is pickled,
evaluates sizes as Python expressions, runs guards as Python code, and calls whatever function of torch a node of the
graph names. What `subspaces export` writes needs none of that, so a file is looked through first, and one that holds
more is refused:

    tensors     raw bytes, no pickles; no example inputs, which are one
    sizes       numbers and symbols, + - * and brackets, least, largest, quotient and remainder
    guards      none
    functions   operators of aten, and the few of Python's that work with sizes; not `from_file`, which reads files
"""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.production.errors import ModelError
from subspaces.production.metadata import FILE

_MEMBERS = re.compile(
    r"data/weights/(weight_\d+|model_weights_config\.json)|data/constants/(tensor_\d+|model_constants_config\.json)"
    r"|models/model\.json|data/sample_inputs/model\.pt|extra/metadata\.json|archive_format|archive_version"
    r"|byteorder|\.data/(version|serialization_id)"
)
_SIZE = re.compile(
    r"(?!.*\*\*)(Symbol\('[su]\d{1,9}'(, (positive|integer|nonnegative)=True){0,3}\)"
    r"|Integer|Add|Mul|Min|Max|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|[\d +*(),-]){1,1000}"
)
_FUNCTION = re.compile(
    r"torch\.ops\.aten\.(?!from_file\b)\w+\.\w+|_operator\.(getitem|add|sub|mul|floordiv|mod|neg|pow)"
)
_ASSERTS = ("torch.ops.aten._assert_scalar.default", "torch.ops.aten.sym_constrain_range_for_size.default")
_TREES = re.compile(r'"type": (null|"builtins\.(tuple|list|dict)")')
MOST = 1 << 27  # bytes of a description, which says what to do with the weights


def vetted(path: Path, content: bytes) -> tuple[dict[str, str], bytes]:
    """Return metadata and content of a .pt2 file that holds nothing but what `subspaces export` writes.

    The content is packed anew, so that torch reads the very members that were looked at.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
            if len(members) != len(archive.infolist()):
                raise ModelError(f"{path} has two members of one name: use another copy")
            if FILE not in {name.removeprefix("extra/") for name in members}:
                raise ModelError(f"{path} was not written by `subspaces export`: expected a file of that command")
            _check_members(path, archive, members)
            for name in ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json"):
                _check_payloads(path, _json(archive, members, name))
            _check_program(path, _json(archive, members, "models/model.json"))
            found = _json(archive, members, f"extra/{FILE}")
            packed = _packed(archive, members)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, RecursionError, NotImplementedError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path} is damaged ({error}): use another copy") from None
    return _object(path, found), packed


def parsed(path: Path, text: str | bytes) -> dict[str, str]:
    """Return metadata that was read with the program."""
    try:
        return _object(path, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged (its metadata: {error}): use another copy") from None


def _object(path: Path, found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        raise ModelError(f"{path} is damaged (its metadata is no object): use another copy")
    return found


def _json(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str) -> Any:
    info = members[name]
    if info.file_size > MOST:
        raise ArgumentError(f"{name} has {info.file_size:,} bytes")
    return json.loads(archive.read(info))


def _packed(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> bytes:
    """Return a new archive of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, info in members.items():
            target.writestr(f"archive/{name}", archive.read(info))
    return buffer.getvalue()


def _refused(path: Path, what: str) -> ModelError:
    return ModelError(
        f"{path} holds {what}, which `subspaces export` does not write and which could run code: pass --trust "
        "(trust=True) if you trust whoever made it"
    )


def _check_members(path: Path, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> None:
    for name, info in members.items():
        if not _MEMBERS.fullmatch(name):
            raise _refused(path, f"the file {name[:80]!r}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise _refused(path, f"a compressed file {name[:80]!r}")
        if name.startswith("data/sample_inputs/") and info.file_size:
            raise _refused(path, "pickled example inputs")
    if (broken := archive.testzip()) is not None:
        raise ArgumentError(f"{broken} does not match its checksum")


def _check_payloads(path: Path, found: Any) -> None:
    for name, entry in found["config"].items():
        if entry["use_pickle"] is not False or not re.fullmatch(r"(weight|tensor)_\d+", entry["path_name"]):
            raise _refused(path, f"{str(name)[:80]!r} as a pickle")


def _check_program(path: Path, found: Any) -> None:
    """Refuse code among what describes the program."""
    if found.get("guards_code"):
        raise _refused(path, "guards, which are Python code")
    for key, value in _entries(found):
        if key == "expr_str" and not (isinstance(value, str) and _SIZE.fullmatch(value)):
            raise _refused(path, f"the expression {str(value)[:80]!r} for a size")
        if key == "target" and not (isinstance(value, str) and (_FUNCTION.fullmatch(value) or value in _ASSERTS)):
            raise _refused(path, f"a call of {str(value)[:80]!r}")
        if key in ("in_spec", "out_spec") and value:
            kinds = re.findall(r'"type"', str(value))
            if len(kinds) != len(_TREES.findall(str(value))):
                raise _refused(path, "inputs or outputs of types of its own")
        if key in ("as_custom_obj", "as_graph", "as_operator") and value is not None:
            raise _refused(path, f"an argument {key!r}")


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every entry of nested objects."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from _entries(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _entries(inner)
