"""Damaged files, kills, crashes and odd values at random: `python -m campaign --help`."""
