"""Where the data sets come from: their publishers' files, checksums and terms."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A file as its publisher offers it; `bytes` is None where the size was not published."""

    url: str
    md5: str
    bytes: int | None = None

    @property
    def name(self) -> str:
        """The file's own name, the last part of its address."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """One data set: what it is, its terms, and what `get` fetches into which folder below the root."""

    name: str
    description: str
    size: str
    homepage: str
    licence: str
    files: tuple[Published, ...] = ()
    others: tuple[Published, ...] = ()  # other versions that `load` reads too, if you fetch them yourself
    folder: str = "."
    instructions: str = ""  # where it cannot be fetched, why, and what to do instead


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_CIFAR = "https://www.cs.toronto.edu/~kriz"

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "digits",
            "1,797 handwritten digits of 8 × 8, grey, 10 classes",
            "comes with scikit-learn",
            "https://archive.ics.uci.edu/dataset/80",
            "CC BY 4.0",
        ),
        Source(
            "mnist",
            "70,000 handwritten digits of 28 × 28, grey, 10 classes",
            "12 MB",
            "http://yann.lecun.com/exdb/mnist",
            "CC BY-SA 3.0",
            (
                Published(f"{_MNIST}/train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
                Published(f"{_MNIST}/train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
                Published(f"{_MNIST}/t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
                Published(f"{_MNIST}/t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
            ),
            folder="mnist",
        ),
        Source(
            "cifar10",
            "60,000 photographs of 32 × 32, colour, 10 classes",
            "170 MB, 184 MB more unpacked",
            "https://www.cs.toronto.edu/~kriz/cifar.html",
            "no licence stated; its authors ask to be cited (Krizhevsky, 2009)",
            (Published(f"{_CIFAR}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),),
            (Published(f"{_CIFAR}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),),
        ),
        Source(
            "tiny-imagenet",
            "110,000 photographs of 64 × 64, colour, 200 classes",
            "248 MB, 1.8 GB more unpacked and decoded",
            "http://cs231n.stanford.edu",
            "ImageNet's terms: research and education, not commercial",
            (
                Published(
                    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                    "90528d7ca1a48142e341f4ef8d21d0de",
                    248_100_043,
                ),
            ),
        ),
        Source(
            "imagenet",
            "1.28 million photographs, colour, 1,000 classes; or any folders of that layout",
            "about 150 GB",
            "https://www.image-net.org",
            "research and education, not commercial; each user agrees with the publisher",
            instructions="each user agrees to its terms: register at https://www.image-net.org/download.php, fetch "
            "the ILSVRC 2012 images, and unpack them to ROOT/train/<class>/*.JPEG and ROOT/val/<class>/*.JPEG",
        ),
        Source(
            "folder",
            "your own images, a folder for each class: any classes, scaled to any one size",
            "as large as yours",
            "docs/own-images.md",
            "yours",
            instructions="they are your own images: put them into DIR/<class>/*, or DIR/train/<class>/* and "
            "DIR/test/<class>/*, and pass --data DIR",
        ),
    )
}
