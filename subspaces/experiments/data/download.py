"""Fetching a file: continued where it stopped, checked against the published checksum, then put in place."""

import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from subspaces.errors import ArgumentError
from subspaces.experiments.data.dataset import DataError, Progress
from subspaces.experiments.data.sources import Published

CHUNK = 1 << 20
TRIES = 3  # in a row that bring nothing new
# Not every OSError: a full disk is not the server's fault.
_INTERRUPTED = (urllib.error.URLError, ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException)


def md5(file: Path) -> str:
    """Return the MD5 of a file, which is what the publishers print."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def fetch(published: Published, folder: Path, progress: Progress | None = None, base_url: str | None = None) -> Path:
    """Return the file in `folder`, downloaded unless it is there and right.

    What has come so far is in NAME.part, from where the next call goes on. `base_url` is a mirror: the
    folder, on another server, of a file with the same name and content.
    """
    target = folder / published.name
    if target.is_file() and md5(target) == published.md5:
        return target
    url = published.url if base_url is None else f"{base_url.rstrip('/')}/{published.name}"
    if not url.startswith(("http://", "https://")):
        raise ArgumentError(f"base_url={base_url!r}: expected an address that begins with http:// or https://")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{published.name}.part"
    _complete(url, partial, published, progress)
    found = md5(partial)
    if found != published.md5:
        size = partial.stat().st_size
        partial.unlink()
        raise DataError(
            f"{url}: md5 {found} of {size:,} bytes, expected {published.md5}"
            f"{f' of {published.bytes:,}' if published.bytes else ''}: the download was removed, try again"
        )
    os.replace(partial, target)
    return target


def _complete(url: str, partial: Path, published: Published, progress: Progress | None) -> None:
    """Download until the file is whole; give up after a few tries in a row without progress."""
    failures, best = 0, partial.stat().st_size if partial.is_file() else 0
    while True:
        try:
            total = _download(url, partial, published, progress)
            reason = "the connection closed"
        except urllib.error.HTTPError as error:
            with error:
                reason = f"the server answered {error.code} {error.reason}"
            if error.code != 416:
                raise ConnectionError(f"{url}: {reason}: try again later, or another base_url") from None
            partial.unlink(missing_ok=True)  # there is more here than the server has: begin again
            total = None
        except _INTERRUPTED as error:
            total, reason = None, str(getattr(error, "reason", error)) or type(error).__name__
        now = partial.stat().st_size if partial.is_file() else 0
        if total is not None and now >= total:
            return
        failures, best = 0 if now > best else failures + 1, max(now, best)
        if failures == TRIES:
            whole = f" of {published.bytes:,}" if published.bytes else ""
            raise ConnectionError(
                f"{url}: stopped after {now:,}{whole} bytes ({reason}): run the same command again to go on from there"
            )


def _download(url: str, partial: Path, published: Published, progress: Progress | None) -> int:
    """Add what is missing to `partial` and return the size that the server says the whole file has."""
    start = partial.stat().st_size if partial.is_file() else 0
    if published.bytes is not None and start == published.bytes:
        return start
    headers = {"User-Agent": "subspaces", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        if answer.status != 206:
            start = 0  # the server sends the file from its beginning
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else published.bytes
        with partial.open("ab" if start else "wb") as file:
            while block := answer.read(CHUNK):
                file.write(block)
                if progress is not None:
                    progress(published.name, file.tell(), total or 0)
            size = file.tell()
    return size if total is None else total
