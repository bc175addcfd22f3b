"""Cards and the terminal show names as they are: nothing in them is Markdown, HTML or an order to a terminal."""

import re
from html import unescape
from pathlib import Path

import torch
from commands import CliRunner
from PIL import Image
from torch import nn

import subspaces as ss
from subspaces.cli import main as app

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


def test_no_name_has_a_meaning_in_a_card(tmp_path: Path) -> None:
    odd = type("<b>Net</b>", (nn.Sequential,), {})
    network = odd(nn.Flatten(), nn.Linear(8, len(NAMES)))
    file = tmp_path / "<i>`a_b`.pt2"
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


def test_names_of_classes_and_files_do_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    classes = ["\x1b]0;title\x07[b]"] * 2
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    ss.export(network, model, example=torch.rand(3, 1, 2, 2), classes=classes, progress=False)
    Image.new("L", (2, 2)).save(tmp_path / "a\x1b[2J.png")
    arguments = ["predict", model, tmp_path / "a\x1b[2J.png", tmp_path / "c\x1b.png", "--quiet"]
    for format in ("table", "csv"):
        ended = CliRunner().invoke(app, [*map(str, arguments), "--format", format], env={"COLUMNS": "300"})
        assert ended.exit_code == 0
        assert r"\x1b]0;title\x07[b]" in ended.stdout
        assert r"a\x1b[2J.png" in ended.stdout
        assert r"c\x1b.png" in ended.stderr
        assert not re.search(r"[^ -~\n─━…]", ended.stdout + ended.stderr)
