"""Image files and arrays as pixels: which files there are, reading them safely, decoding, normalising."""
