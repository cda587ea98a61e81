"""The SDKs of stores, as readers and writers use them: no other host gets rows or tokens, and no connection stays."""
