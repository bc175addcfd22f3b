"""Where the command line imports from: never from the folder in which it happens to be called.

`python -m subspaces` searches the current folder first, and an empty entry of PYTHONPATH means that folder too, which
is what `PYTHONPATH=$PYTHONPATH:/mine` makes of an unset one. Where the folder came from somebody else, a `sklearn.py`
in it would be run. So it is taken out before anything else is imported, here and in all processes that are started;
a program that imports this package is left alone, and so is a folder that PYTHONPATH names. What comes before is
beyond us: a folder `subspaces` that lies there, for `python -m`, and what Python itself loads through PYTHONPATH.

And how fast: what is imported is no garbage, and to look through it again and again takes a fifth of the time.
"""

import gc
import os
import sys  # nothing else may be imported here but what Python has loaded before

PACKAGE = __name__.partition(".")[0]


def called_as(arguments: list[str], original: list[str]) -> str | None:
    """Return how the command line was called, "module" or "script"; None: this is another program.

    Args:
        arguments: `sys.argv`, whose first is "-m" as long as Python looks for the module.
        original: `sys.orig_argv`, which ends with the module's name and the arguments: `-m NAME …` or `-mNAME …`.
    """
    if not arguments:
        return None
    if arguments[0] == "-m":
        word = original[-len(arguments)]
        module = word.partition("m")[2] if word.startswith("-") else word
        return "module" if module.partition(".")[0] == PACKAGE else None
    name = os.path.splitext(os.path.basename(arguments[0]))[0]
    return "script" if name == PACKAGE else None


def cleaned(path: list[str], first: bool, pythonpath: str, here: str, home: str) -> list[str]:
    """Return a search path without the current folder, unless the user has named it.

    Args:
        path: `sys.path`.
        first: whether its first entry is the current folder, put there by Python.
        pythonpath: as in the environment.
        here: the current folder.
        home: the folder that this package lies in. Where it is the current one, it is searched last instead, for
            new processes must find the package.
    """
    kept = path[1:] if first else path
    named = pythonpath.split(os.pathsep)
    if pythonpath and "" in named and here not in [os.path.abspath(entry) for entry in named if entry]:
        kept = [entry for entry in kept if entry not in ("", here)]
    return [*kept, home] if home in path and home not in kept else kept


def clean() -> None:
    """Take the current folder out of the search path of the command line, and of the processes that it starts."""
    called = called_as(sys.argv, sys.orig_argv)
    if called is None:
        return
    gc.disable()  # until `imported`
    pythonpath = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed: nothing can be found there
        here = ""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = cleaned(sys.path, called == "module" and not sys.flags.safe_path, pythonpath, here, home)
    os.environ["PYTHONSAFEPATH"] = "1"
    if pythonpath:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, pythonpath.split(os.pathsep)))


def imported() -> None:
    """Look for garbage from now on, but not among what is there already."""
    gc.freeze()
    gc.enable()


def ended() -> None:
    """Let the process go: Python would look through all that it has once more, which takes a second."""
    gc.disable()
    gc.freeze()


clean()
