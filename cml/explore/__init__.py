"""What an embedding and its labels say of the same items: maps, neighbours, disagreements. Not for: pages of them."""
