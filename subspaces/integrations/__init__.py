"""Families in the training loops of other libraries; each file needs the library that it is named after."""
