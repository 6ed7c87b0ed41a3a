"""The commands' reads from a cluster through an admin client, and the decisions that need no I/O."""
