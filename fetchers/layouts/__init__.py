"""How storage plug-ins name and store segments, apart from the medium they store them on."""
