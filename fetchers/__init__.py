"""The built-in RemoteStorageFetchers, found by name through entry points and never imported by `remote_fetch`."""
