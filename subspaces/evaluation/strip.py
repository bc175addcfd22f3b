"""The images of the report's strip, from what the measured points have said."""

from subspaces.data import Dataset, Split
from subspaces.evaluation.examples import Examples, choose
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.points import to_place

SPLIT = "test"
PIXELS = 64 * 64  # of an image: a page holds 48 of them


def renew(journal: Journal, measured: bool) -> None:
    """Write the examples of a record, unless they are there and nothing was measured since."""
    alphas = [row.alphas[0] for row in journal.record.rows if row.kind == "point" and row.split == SPLIT]
    if len(alphas) < 2:
        return
    if not measured:
        there = Examples.of(journal.record, journal.folder)
        if there is not None and there.alphas == alphas:
            return
    if (images := _small_images(journal.bench.dataset)) is None:
        return
    answers = journal.predictions.stacked(SPLIT, [to_place(alpha) for alpha in alphas])
    chosen = choose(answers.predicted, answers.confidence)
    Examples(
        images=images.images[chosen],
        labels=images.labels[chosen],
        indices=chosen,
        predicted=answers.predicted[:, chosen].long(),
        confidence=answers.confidence[:, chosen],
        alphas=alphas,
        split=SPLIT,
        run=journal.record.key,
        family=str(journal.record.family),
    ).write(journal.folder)


def _small_images(dataset: Dataset) -> Split | None:
    """Return the split if its images are in memory and small enough for a page."""
    split = getattr(dataset, SPLIT)
    small = isinstance(split, Split) and split.images.shape[-2] * split.images.shape[-1] <= PIXELS
    return split if small else None
