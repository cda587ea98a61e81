"""Everything that stays open during a read: the store, the brokers, the pools, and the rule of falling back."""
