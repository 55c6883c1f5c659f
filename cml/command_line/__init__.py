"""What all commands share: reading options, error messages, formatting of sizes and times."""
