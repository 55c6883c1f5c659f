"""What every command shares: reading options, wording refusals, amounts for people."""
