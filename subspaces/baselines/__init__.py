"""What other methods make of one network in training: averages, checkpoints, samples, a stop in time."""
