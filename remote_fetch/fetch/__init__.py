"""From a slice to its bytes: the port that fetchers implement, found by name, read ahead within a budget."""
