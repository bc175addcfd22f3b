"""`subspaces plot`: names, files, errors of one line."""

import dataclasses
import sys
from pathlib import Path

import pytest
from commands import CliRunner
from processes import Pause, Worker

import subspaces as ss
from subspaces.cli import main as app
from subspaces.experiments.training import Run, run_files
from subspaces.reports.figures import KINDS

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
import made_runs

runner = CliRunner()


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(made_runs.run(tmp_path_factory.mktemp("runs"), "line"))


def test_both_files_are_written_where_the_user_is(line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["plot", "along", line])
    assert (result.exit_code, result.stdout) == (0, "wrote along.png\nwrote along.pdf\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["along.pdf", "along.png"]


def test_options(line, tmp_path: Path):
    out = tmp_path / "ece.pdf"
    result = runner.invoke(app, ["plot", "along", line, "-o", str(out), "--metric", "ece", "--split", "test"])
    assert (result.exit_code, result.stdout) == (0, f"wrote {out}\n")
    assert out.read_bytes().startswith(b"%PDF-")


def test_the_help_lists_every_figure():
    result = runner.invoke(app, ["plot", "--help"])
    assert result.exit_code == 0
    assert all(f"{name}: " in result.output for name in KINDS)


def with_other_data(line: str, folder: Path) -> str:
    folder.mkdir()
    recipe = dataclasses.replace(Run.open(line).recipe, dataset="mnist")
    run_files.write_json(folder / "config.json", recipe.to_dict(), recipe.key)
    return str(folder)


def test_what_is_wrong_is_one_line(line, tmp_path: Path):
    other = with_other_data(line, tmp_path / "other")
    for arguments, code, words in (
        (["alnog", line], 2, "no figure 'alnog': did you mean 'along'? (figures: along, betas, plane, training, "),
        (["along", line, "-o", "a.jpg"], 2, "expected a name that ends in .png or .pdf"),
        (["along", line, "--metric", "acuracy"], 2, "error: --metric='acuracy': did you mean 'accuracy'?"),
        (["training", line, "--metric", "l2"], 2, "error: --metric='l2': the figure 'training' has no choice of a"),
        (["training", line, "--split", "test"], 2, "error: --split='test': the figure 'training' has no choice of a"),
        (["trainig", line, "--split", "test"], 2, "no figure 'trainig': did you mean 'training'?"),
        (["along", line, "--split", "tset"], 1, "did you mean 'test'?"),
        (["training", line, other], 1, "expected runs on one data set"),
        (["along", other], 1, "has no evaluation.json: run `subspaces evaluate"),
        (["along", str(tmp_path)], 1, "is not a run folder"),
        (["shift-along", line], 1, "was not measured on shifted data: evaluate it with corruptions"),
        (["along"], 2, "are required: RUN"),
    ):
        result = runner.invoke(app, ["plot", *arguments])
        assert result.exit_code == code, arguments
        assert words in result.stderr
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1


def draws(pause: Pause, line: str, out: Path) -> None:
    assert "matplotlib" not in sys.modules
    ss.plot("along", line, out)
    assert "matplotlib" in sys.modules
    assert "matplotlib.pyplot" not in sys.modules


def test_matplotlib_is_imported_when_a_figure_is_drawn_and_pyplot_never(line, tmp_path: Path):
    """Another process, forked from one that has imported the command line."""
    Worker(draws, line, tmp_path / "a.png").end()
