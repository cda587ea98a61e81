"""Sessions for the SDKs of clouds that follow no redirect, so that no other host gets rows or tokens."""
