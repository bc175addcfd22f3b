"""Corrupted images: ImageNet-C's corruptions as operations on batches.

`parameters.toml` has the published parameters for images of 32, 64 and 224 pixels; other images get those of the
nearest size. Random numbers depend on the seed, the corruption, its severity and the image's number, not on the batch;
devices differ by a grey level here and there. At 32 pixels, as published, elastic transform 5 moves less than 1,
saturate 3 is milder than 2, spatter 4 changes less than 3, and frost 5 changes mid-grey pictures less than 3.

What differs from the published images, so that numbers are not comparable to the last digit: frost is drawn (needles of
ice with the mean colour and about the contrast of the photographs that were pasted), with the published weights; motion
blur and snow follow ImageMagick's rule (half a Gaussian along a line) without it; spatter has exact distances where
OpenCV approximates them; JPEG is libjpeg's arithmetic with exact cosine transforms, on average less than half a grey
level from Pillow's; the lengths of the elastic transform are in sides of the image, which is the same at the published
sizes; random draws differ; and ImageNet-C's files were also saved as JPEG of quality 85. All others are the published
computations: the tests compare them with scipy, Pillow and the formulas.
"""

from subspaces.evaluation.corruptions.catalogue import CORRUPTIONS, GROUPS, SEVERITIES, Corruption, corrupt

__all__ = ["CORRUPTIONS", "GROUPS", "SEVERITIES", "Corruption", "corrupt"]
