"""The test images of the page: small pictures as data URIs."""

import base64
import io
import json
from typing import Any

from torch import Tensor

from subspaces.evaluation.examples import pictures
from subspaces.evaluation.record import Examples, Row

SIDE = 64  # pixels; larger images are made smaller


def strip(examples: Examples | None, points: list[Row], split: str, most: int) -> dict[str, Any] | None:
    """Return up to `most` images with their labels and what every point answers, None where not known."""
    if examples is None or examples.split != split or not len(examples.labels):
        return None
    at = {json.dumps(alpha): index for index, alpha in enumerate(examples.alphas)}
    places = [at.get(json.dumps(row.alphas[0])) for row in points]
    return {
        "images": [data_uri(image) for image in pictures(examples)[:most]],
        "labels": examples.labels[:most],
        "indices": examples.indices[:most],
        "predicted": [None if place is None else examples.predicted[place][:most] for place in places],
        "confidence": [
            None if place is None else [round(value, 2) for value in examples.confidence[place][:most]]
            for place in places
        ],
    }


def data_uri(image: Tensor) -> str:
    """Return an image uint8 [C, H, W] as the text of a WebP file; tiny ones keep every pixel."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("the report's test images need Pillow: pip install 'subspaces[report]'") from None

    pixels = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :3]).convert("RGB")
    picture.thumbnail((SIDE, SIDE))
    content = io.BytesIO()
    picture.save(content, "WEBP", lossless=max(picture.size) <= 28, quality=88, method=6)
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"
