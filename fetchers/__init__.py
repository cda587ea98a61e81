"""The built-in RemoteStorageFetchers, found by name through entry points; nothing here is imported by `remote_fetch`."""
