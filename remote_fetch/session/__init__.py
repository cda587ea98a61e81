"""What stays open while something is read: the store, the brokers, the pools, and the rule of falling back."""
