"""The model card of a family, and repositories of the Hugging Face hub, whose server is one on this machine."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hub_server import HubServer, serving
from pretrained_cases import Net, assert_same, by_part, used
from torch import nn

import subspaces as ss
from subspaces.core.pretrained import HubError
from subspaces.errors import ArgumentError, MissingPackageError

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub, by itself
FILES = ["README.md", "config.json", "model.safetensors"]


# The model card


def card_of(family: ss.Subspace, folder: Path, **options: Any) -> tuple[dict[str, Any], str]:
    """Return the metadata of a card, and its text."""
    _, front, text = (family.save_pretrained(folder, **options) / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), text


@pytest.mark.parametrize("name", ["layerwise", "groups"])
def test_the_code_on_the_card_loads_the_family(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = used(name)
    front, text = card_of(family, tmp_path / "my family", license="mit", tags=["a: b", "subspaces", "#c\n---"])
    assert front == {"library_name": "subspaces", "license": "mit", "tags": ["subspaces", "pytorch", "a: b", "#c\n---"]}
    assert "# my family\n" in text
    assert "No measurements were given" in text
    code = text.split("```python\n")[1].split("```")[0]
    names = {"make_net": Net, "loader": [torch.randn(8, 5)], "groups": by_part}
    monkeypatch.chdir(tmp_path)
    exec(code, names)
    assert_same(family, names["family"])
    assert type(names["network"]) is Net
    assert not names["network"].training


def test_the_card_shows_names_and_numbers_as_they_are(tmp_path: Path) -> None:
    strange = type("Evil|<b>*", (nn.Linear,), {})
    _, text = card_of(ss.Subspace(lambda: strange(2, 2), ss.Line()), tmp_path, metrics={"a|b": 1 / 3, "c": 2})
    assert r"| network | Evil\|&lt;b&gt;\* |" in text
    assert "| a\\|b | 0.3333 |\n| c | 2 |\n" in text
    assert "recalibrate" not in text  # there is no batch norm
    _, text = card_of(used(), tmp_path, metrics="  one\n```\n# two\x1b")
    assert text.endswith("## Measured\n\n````text\n  one\n```\n# two\\x1b\n````\n")


def test_the_card_has_the_table_of_an_evaluation(tmp_path: Path) -> None:
    family = ss.Subspace(lambda: nn.Linear(5, 3), ss.Line())
    loader = [(torch.randn(16, 5), torch.randint(3, (16,)))]
    evaluation = ss.evaluate(family, test=loader, progress=False)
    _, text = card_of(family, tmp_path, metrics=evaluation)
    assert f"{100 * evaluation['midpoint'].accuracy:.2f}" in text
    assert all(line.rstrip() in text for line in evaluation.table().splitlines())


# The hub


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with serving(tmp_path_factory.mktemp("hub")) as server:
        yield server


@pytest.fixture(autouse=True)
def _a_folder_without_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_family_goes_to_the_hub_and_comes_back(hub: HubServer, tmp_path: Path) -> None:
    family = used("layerwise")
    with pytest.raises(HubError, match=r"'me/family' could not be uploaded to the hub .*404.*create=True"):
        family.push_to_hub("me/family")
    url = family.push_to_hub("me/family", create=True, private=True, license="mit", metrics={"accuracy": 0.9})
    first = hub.branches["me/family"]["main"]
    assert (url, hub.private) == (f"{hub.url}/me/family/commit/{first}", {"me/family": True})
    files = hub.files("me/family")
    assert sorted(files) == FILES
    assert hub.cards[-1] == files["README.md"].decode()
    assert 'from_pretrained("me/family", make_net)' in files["README.md"].decode()
    family.save_pretrained(tmp_path / "family")
    assert all(files[name] == (tmp_path / "family" / name).read_bytes() for name in FILES[1:])
    assert_same(family, ss.Subspace.from_pretrained("me/family", Net))

    other = used()
    other.push_to_hub("me/family", create=True, card=False)  # it is there, and its card stays
    assert hub.files("me/family")["README.md"] == files["README.md"]
    assert_same(other, ss.Subspace.from_pretrained("me/family", Net))
    assert_same(family, ss.Subspace.from_pretrained("me/family", Net, revision=first))
    hub.requests.clear()
    assert_same(other, ss.Subspace.from_pretrained("me/family", Net, local_files_only=True))
    assert hub.requests == []
    with pytest.raises(HubError, match=r"could not be downloaded from the hub .*check the id, and the token"):
        ss.Subspace.from_pretrained("me/family", Net, token=False, cache_dir=tmp_path / "cache")
    with pytest.raises(HubError, match=r"Invalid rev id\): check revision="):
        ss.Subspace.from_pretrained("me/family", Net, revision="missing")
    with pytest.raises(HubError, match=r"Invalid rev id\): check revision="):
        family.push_to_hub("me/family", revision="missing")


def test_a_local_folder_comes_first(hub: HubServer, tmp_path: Path) -> None:
    family = used()
    used().push_to_hub("me/family", create=True)
    family.save_pretrained("me/family")
    hub.requests.clear()
    assert_same(family, ss.Subspace.from_pretrained("me/family", Net))
    with pytest.raises(ArgumentError, match="a folder of that name, which comes first and has no revisions"):
        ss.Subspace.from_pretrained("me/family", Net, revision="main")
    assert hub.requests == []


def test_a_repository_of_something_else_is_refused(hub: HubServer) -> None:
    hub.create("me/other")
    files = {"config.json": b'{"model_type": "bert"}', "modeling.py": b"raise SystemExit"}
    hub.branches["me/other"]["main"] = hub.commit(files)
    with pytest.raises(ss.FileError, match="is of library None, expected 'subspaces'"):
        ss.Subspace.from_pretrained("me/other", Net)
    assert not any("modeling.py" in each for each in hub.requests)  # nor is anything else downloaded


def test_a_hub_that_cannot_be_reached(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.server_close()
    hub.shutdown()
    for call in (lambda: used().push_to_hub("me/family"), lambda: ss.Subspace.from_pretrained("me/family", Net)):
        with pytest.raises(HubError, match="check the id, the connection, and the variable HF_ENDPOINT"):
            call()


@pytest.mark.parametrize("repo_id", ["a/b/c", "", "/a", "a b", "../x", None, Path("a/b")])
def test_what_is_no_repository_is_refused(repo_id: Any) -> None:
    with pytest.raises(ArgumentError, match="expected the id of a repository, such as 'user/name'"):
        used().push_to_hub(repo_id)


def test_private_is_a_setting_of_a_new_repository() -> None:
    with pytest.raises(ArgumentError, match="private=True without create=True"):
        used().push_to_hub("me/family", private=True)


def test_without_huggingface_hub_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    family = used()
    with pytest.raises(MissingPackageError, match=r"push_to_hub needs huggingface_hub: pip install 'subspaces\[hub\]'"):
        family.push_to_hub("me/family")
    with pytest.raises(MissingPackageError, match="no folder 'me/family' here; the download of a repository needs hug"):
        ss.Subspace.from_pretrained("me/family", Net)
    assert_same(family, ss.Subspace.from_pretrained(family.save_pretrained(tmp_path), Net))  # which needs nothing
