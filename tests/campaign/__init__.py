"""Damage, kills, crashes, nonsense and malice by the thousand: `python -m campaign --help`."""
