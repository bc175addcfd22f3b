"""Build the pages that are not files under docs/: RESULTS.md and what it links to, and the command line's options.

MkDocs calls the functions `on_*` (see `hooks` in mkdocs.yml). A Markdown link that leaves docs/ works on a Git host as
it is; here the file that it names becomes a page or a file of the site, and the link leads to it.
"""

import argparse
import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ALWAYS = ("RESULTS.md", "CHANGELOG.md", "CONTRIBUTING.md")
"""Documents of the repository that are in the navigation."""
SOURCES = {".py": "python", ".toml": "toml", ".yml": "yaml"}
"""Files that become pages with their text as a block of code, by their languages."""
COMMANDS = "<!-- commands -->"
FENCED = re.compile(r"(^ *(`{3,}|~{3,}).*?^ *\2 *$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_uris: dict[Path, str] = {}
"""The place on the site of each file of the repository that has one."""
_sources: dict[str, Path] = {}
"""The file of the repository at each place."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents of the repository, and everything that they or the pages link to."""
    root, docs = _folders(config)
    _uris.clear()
    _sources.clear()
    for file in files:
        _uris[docs / file.src_uri], _sources[file.src_uri] = file.src_uri, docs / file.src_uri
    _uris[root / "README.md"] = "index.md"  # which says the same
    waiting = [(docs / file.src_uri, file.content_string) for file in files.documentation_pages()]
    waiting += [_published(root / name, files, config) for name in ALWAYS]
    while waiting:
        source, text = waiting.pop()
        for part in FENCED.split(text)[::3]:
            for _, link, _ in LINK.findall(part):
                target = _target(source, link, root)
                if target is not None and target not in _uris:
                    waiting.append(_published(target, files, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages of the site, and fill in the options of the command line."""
    root, docs = _folders(config)
    here = page.file.src_uri
    source = _sources.get(here, docs / here)  # of a page that another hook has made

    def led(match: re.Match[str]) -> str:
        target = _target(source, match[2], root)
        if target is None:
            return match[0]
        _, mark, anchor = match[2].partition("#")
        end = mark + anchor if target != root / "README.md" else ""
        return f"{match[1]}{os.path.relpath(_uris[target], os.path.dirname(here) or '.')}{end}{match[3]}"

    parts = FENCED.split(markdown)
    del parts[2::3]  # the fences themselves
    found = "".join(part if index % 2 else LINK.sub(led, part) for index, part in enumerate(parts))
    return found.replace(COMMANDS, _commands()) if COMMANDS in found else found


def _folders(config: MkDocsConfig) -> tuple[Path, Path]:
    """Return the repository and its docs/."""
    return Path(config.config_file_path).resolve().parent, Path(config.docs_dir).resolve()


def _published(path: Path, files: Files, config: MkDocsConfig) -> tuple[Path, str]:
    """Add a file or folder of the repository to the site, at the same place; return what links are relative to, and it.

    RESULTS.md becomes results.html, and a folder without a README a list of its files.
    """
    place = path.relative_to(_folders(config)[0])
    uri, content, source = place.as_posix(), "", path
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir() if each.is_file())
        content = "\n".join([f"# {place}\n", *(f"- [{name}]({name})" for name in names)])
        uri, source = f"{uri}/README.md", path / "README.md"
    elif path.suffix in SOURCES:
        content = f"# {place}\n\n```{SOURCES[path.suffix]}\n{path.read_text()}```\n"
        uri = f"{uri}.md"
    elif path.suffix == ".md":
        content = path.read_text()
        uri = uri.lower() if len(place.parts) == 1 else uri
    made: dict[str, Any] = {"content": content} if content else {"abs_src_path": str(path)}
    files.append(File.generated(config, uri, **made))
    _uris[path], _sources[uri] = uri, source
    return source, "" if path.suffix in SOURCES else content


def _target(source: Path, link: str, root: Path) -> Path | None:
    """Return the file or folder of the repository that a link names, the README of a folder that has one, or None."""
    name = link.partition("#")[0]
    if not name or re.match(r"[a-z]+:|/", name):
        return None
    path = (source.parent / name).resolve()
    path = path / "README.md" if (path / "README.md").is_file() else path
    return path if path.exists() and path.is_relative_to(root) and path != root else None  # MkDocs reports the others


# The command line


def _commands() -> str:
    """Return all commands with their options, as they are in `--help`."""
    from subspaces.cli import build

    found: list[str] = []
    _add_commands(build(), found)
    return "\n\n".join(found)


def _add_commands(parser: Any, found: list[str]) -> None:
    for command in parser.commands.values():
        if command.commands:
            _add_commands(command, found)
            continue
        found += [f"## {command.prog}", *(command.description or "").split("\n\n")]
        places = [each.metavar or each.dest for each in command._actions if not each.option_strings]
        found.append(f"```sh\n{' '.join([command.prog, *places, '[options]'])}\n```")
        for group in command._action_groups:
            shown = [each for each in group._group_actions if each.help not in (None, argparse.SUPPRESS)]
            rows = [_row(each) for each in shown if "--help" not in each.option_strings]
            if rows:
                title = group.title if group.title not in ("options", "positional arguments") else ""
                found.append("\n".join(filter(None, [f"**{title[:1].upper()}{title[1:]}**\n" if title else ""])))
                found.append("\n".join(["| | |", "|---|---|", *rows]))


def _row(action: argparse.Action) -> str:
    """Return the row of an argument or option."""
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    metavar = f" `{action.metavar}`" if action.option_strings and isinstance(action.metavar, str) else ""
    text = re.sub(r"(?<!\w)([*_<|])", r"\\\1", (action.help or "").replace("%%", "%"))
    return f"| {names}{metavar} | {text} |"
