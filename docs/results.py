"""Write the tables of README.md and RESULTS.md from the files under results/: `make tables`.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME is a key of `TABLES`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paper_rows import NOTES, judged, read

from subspaces.evaluation.statistics import Spread, shown
from subspaces.experiments.paper import FIGURES, SCALES, VERDICTS, Figure, Scale
from subspaces.experiments.paper.figures import VALUES

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "RESULTS.md")
BLOCK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
MARKS = dict(zip(VERDICTS, "✓✗?", strict=True))
METRICS = {"accuracy": (100, 2), "ece": (100, 2), "nll": (1, 3)}  # scale and digits
LAPTOP_ROWS = {  # a method and an answer of the studies of label noise; what they are called, and networks at test
    ("standard", "network"): ("standard training", "1"),
    ("early-stopping", "network"): ("early stopping on 2,000 clean images", "1"),
    ("dropout", "network"): ("dropout 0.2", "1"),
    ("swa-constant (m = 3)", "average of 3"): ("weight averaging (SWA), constant rate", "1"),
    ("swa-cyclic (m = 3)", "average of 3"): ("weight averaging (SWA), cyclic rate", "1"),
    ("line", "midpoint"): ("**line: midpoint**", "1"),
    ("simplex (m = 3)", "midpoint"): ("**simplex of 3: midpoint**", "1"),
    ("simplex (m = 3), layerwise", "midpoint"): ("**simplex of 3, layerwise: midpoint**", "1"),
    ("line", "ensemble of 0.1 and 0.9"): ("**line: its points 0.1 and 0.9**", "2"),
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(row)} |\n" for row in [head, *rows]]
    return "".join([lines[0], f"|{'---|' * len(head)}\n", *lines[1:]])


def laptop() -> str:
    """Return methods at the scale laptop, with clean labels and with noisy ones."""
    studies = [read(f"reproduce/laptop/{name}") for name in ("large-noise", "label-noise")]
    lines = [line for study in studies if study for line in study["measured"]["lines"]]
    found = {(line["method"], line["answer"], line["label_noise"]): line["metrics"] for line in lines}
    rows = []
    for (method, answer), (label, cost) in LAPTOP_ROWS.items():
        cells = [found.get((method, answer, level), {}) for level in SCALES["laptop"].levels]
        if all(cells):
            several = [(each[name], METRICS[name]) for each in cells for name in ("accuracy", "ece")]
            rows.append([label, *(spread_of(each, how) for each, how in several), cost])
    heads = (f"{labels}: {name} %" for labels in ("clean labels", "40 % random") for name in ("accuracy", "ECE"))
    return table(["", *heads, "networks at test"], rows)


def spread_of(found: Mapping[str, Any], how: tuple[float, int]) -> str:
    """Return the mean and the standard deviation of what a file has."""
    return shown(Spread(found["values"], found["mean"], found["std"]), *how)


def claims(scales: Mapping[str, Any]) -> str:
    """Return all claims with their verdicts: of files of `subspaces reproduce`, and with the paper's networks."""
    rows, totals = [], [Counter[str]() for _ in (*scales, "paper")]
    for figure in FIGURES.values():
        rows.append([f"**{figure.where}**: {figure.shows}", *[""] * len(scales), NOTES.get(figure.name, "")])
        for sentence, formula in figure.claims.items():
            one = replace(figure, claims={sentence: formula})
            cells = [*(marks(one, SCALES[name], found) for name, found in scales.items()), with_its_networks(one)]
            rows.append([in_words(sentence), *(cell or "–" for cell in cells)])
            for total, cell in zip(totals, cells, strict=True):
                total.update(cell)
    rows.append(["**all claims**", *(", ".join(f"{n[mark]} {mark}" for mark in MARKS.values()) for n in totals)])
    seeds = (f"{len(found['seeds'])} seeds" if found else "not made yet" for found in scales.values())
    heads = [f"{name}: {some}" for name, some in zip(scales, seeds, strict=True)]
    return table(["claim", *heads, "paper's networks: 2 seeds"], rows)


def in_words(sentence: str) -> str:
    """Replace names in braces by what they stand for, where that is the same at every scale."""
    setups = [SCALES[name].setup("cifar10") for name in ("smoke", "laptop", "paper")]

    def words(match: re.Match[str]) -> str:
        first, *others = ([str(each) for each in VALUES[match[1]](setup)] for setup in setups)
        return " / ".join(first) if all(each == first for each in others) else f"*{match[1]}*"

    return re.sub(r"{(\w+)}", words, sentence)


def marks(figure: Figure, scale: Scale, found: Any) -> str:
    """Return a mark for each claim of a figure in a file, network by network."""
    sentences = [claim.sentence for claim in figure.claims_on(scale.setup(figure.on[0]))]
    made = [each["claims"] for each in found.get("figures", ()) if each["figure"] == figure.name]
    verdicts = [{claim["claim"]: MARKS[claim["verdict"]] for claim in some} for some in made]
    return " ".join("".join(each[sentence] for sentence in sentences) for each in verdicts)


def with_its_networks(figure: Figure) -> str:
    """Return the verdicts of those claims of a figure that were measured with the paper's networks."""
    every, cells = list(figure.claims_on(SCALES["paper"].setup(figure.on[0]))), []
    pattern = re.sub(r"\\{\w+\\}", "(.+)", re.escape(next(iter(figure.claims))))
    for claim in every:
        found, names = judged(claim, figure.name), re.fullmatch(pattern, claim.sentence)
        if found and names:
            label = f"{', '.join(dict.fromkeys(names.groups()))}: " if len(every) > 1 else ""
            cells.append(f"{label}{MARKS[found.verdict]} {found.cells()[-1]}")
    return "<br>".join(cells)


TABLES: dict[str, Callable[[], str]] = {
    "laptop": laptop,
    "claims": lambda: claims({name: read(f"reproduce/{name}") for name in ("smoke", "laptop")}),
}


def rewritten(text: str) -> str:
    """Return a document with all its tables as the files have them."""
    return BLOCK.sub(lambda block: block[1] + TABLES[block[2]]() + block[3], text)


if __name__ == "__main__":
    for document in (ROOT / name for name in DOCUMENTS):
        document.write_text(rewritten(document.read_text()))
