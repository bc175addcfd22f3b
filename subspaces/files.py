"""Files that are either whole or not there."""

import json
import os
import secrets
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as an indented JSON file."""
    write(path, (json.dumps(value, indent=2) + "\n").encode())
