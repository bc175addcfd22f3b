"""What a data set is: images as bytes, labels, and the constants that normalise them."""

from dataclasses import dataclass
from pathlib import Path

from subspaces.errors import DataError
from subspaces.evaluation.display import Progress
from subspaces.images.splits import Files, Images, Split, check_label_values

__all__ = ["DataError", "Dataset", "Files", "Images", "Progress", "Split", "check_label_values", "missing"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set; `mean` and `std` are per channel, of pixel values scaled to [0, 1].

    `validation` is what was held out of the training set, if anything was. A `test` set without
    public labels is replaced by the publisher's validation set.
    """

    name: str
    train: Images
    validation: Images | None
    test: Images
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image as a network gets it."""
        if isinstance(self.train, Files):
            return (3, 224, 224)
        channels, height, width = self.train.images.shape[1:]
        return (channels, height, width)

    @property
    def streaming(self) -> bool:
        """Whether the images are files, for `StreamingLoader`; all else fits `ResidentLoader`."""
        return isinstance(self.train, Files)


def missing(name: str, files: list[str], looked: list[Path]) -> FileNotFoundError:
    """Return the error that says which files are not there, where they were looked for and how to get them."""
    folders = ", ".join(str(folder) for folder in looked)
    return FileNotFoundError(
        f"{name}: found no {', '.join(files)} in {folders}: pass the folder that has them, "
        f"or fetch them with `subspaces data get {name} --data {looked[0]}`"
    )
