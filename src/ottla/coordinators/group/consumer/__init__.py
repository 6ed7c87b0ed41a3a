"""Consumer groups of KIP-848."""
