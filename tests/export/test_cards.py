"""Cards and the terminal show names as they are: nothing in them is Markdown, HTML or an order to a terminal."""

import re
from html import unescape
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app

NAMES = [
    "<script>alert(1)</script>",
    "a|b",
    "![x](http://example.org/x.png)",
    "`code` *strong* _em_ ~~gone~~",
    "www.example.org",
    "\x1b[31mred\nline",
    "&lt;b&gt;",
]
SPECIAL = re.compile(r"<|(?<!\\)[`*_\[\]|~]|://|www\\.|&(?!(lt|gt|amp|#\d+);)|[^ -~\n…×±≥·–]")


@pytest.mark.parametrize("format", ["safetensors", "pt2"])
def test_no_name_has_a_meaning_in_a_card(format: str, tmp_path: Path) -> None:
    odd = type("<b>Net</b>", (nn.Sequential,), {})
    network = odd(nn.Flatten(), nn.Linear(8, len(NAMES)))
    file = tmp_path / f"<i>`a_b`.{format}"
    ss.export(network, file, example=torch.rand(3, 2, 2, 2), classes=NAMES, progress=False)
    card = file.with_name(f"{file.name}.md").read_text()
    before, code, after = re.split(r"```(?:python)?\n", card)
    outside = before + after
    (row,) = (line for line in outside.splitlines() if line.startswith("| classes |"))
    cell = row.removeprefix("| classes |").removesuffix(" |")
    assert not SPECIAL.search(cell), SPECIAL.search(cell)
    shown = re.sub(r"\\([`*_\[\]|~\\])", r"\1", unescape(cell)).partition(": ")[2]
    assert shown == ", ".join([*NAMES[:5], r"\x1b[31mred line", NAMES[6]])
    assert "<" not in outside
    compile(code, "card", "exec")


@pytest.mark.parametrize("format", ["table", "csv"])
def test_names_of_classes_and_files_do_not_reach_the_terminal_raw(format: str, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    model = tmp_path / "net.onnx"
    example = torch.rand(3, 1, 2, 2)
    ss.export(network, model, example=example, classes=["\x1b]0;title\x07[b]"] * 2, progress=False)
    Image.new("L", (2, 2)).save(tmp_path / "a\x1b[2J.png")
    (tmp_path / "b\x1b[2J.png").write_text("hello")
    arguments = ["predict", model, tmp_path / "a\x1b[2J.png", tmp_path / "b\x1b[2J.png", tmp_path / "c\x1b.png"]
    ended = CliRunner().invoke(app, [*map(str, arguments), "--format", format, "--quiet"], env={"COLUMNS": "300"})
    assert ended.exit_code == 0
    assert r"\x1b]0;title\x07[b]" in ended.stdout
    assert r"a\x1b[2J.png" in ended.stdout
    assert r"b\x1b[2J.png" in ended.stderr
    assert not re.search(r"[^ -~\n─━…]", ended.stdout + ended.stderr)
