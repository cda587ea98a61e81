"""Where is offset N: the segments of a partition, and which of them belong to its log."""
