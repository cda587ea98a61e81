"""An HTTP service that vends access to the tier (KIP-1254). Its clients need no key to the bucket.

A client reads a topic only if the brokers' ACLs allow that."""
