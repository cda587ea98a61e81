"""Records of a tier into a topic of another cluster: whole topics with their offsets, and ranges once again."""
