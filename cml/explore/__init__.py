"""What an embedding and its labels say of the same items: maps, neighbours, disagreements, and pages of them."""
