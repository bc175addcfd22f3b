"""The paper's experiments: data sets, methods, training runs and studies."""
